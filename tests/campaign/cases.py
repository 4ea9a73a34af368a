"""What a campaign is made of: classes of faults, parsers to be fuzzed, and what is counted of each case."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from random import Random
from typing import Any

from ocr.errors import GlyphFeedError


class FindingError(AssertionError):
    """Something that must not happen."""

    kind = "wrong sample"
    """What it is called in the table."""


class WrongSampleError(FindingError):
    """A sample that is not the uncached one, or comes in another order."""


class SilentSkipError(FindingError):
    """A sample that is missing, and counted nowhere."""

    kind = "silent skip"


class LeakError(FindingError):
    """A process, thread, descriptor, file or memory that stays."""

    kind = "leak"


class CrashError(FindingError):
    """An end by a signal, or an error that is none of ours or does not name the file."""

    kind = "crash"


@dataclass
class Tally:
    """What was done and seen, summed over cases."""

    samples: int = 0
    """Compared with uncached ones, bit for bit."""
    orders: int = 0
    """Orders of samples that were compared with those of an undisturbed run."""
    processes: int = 0
    """Started, killed or ended."""
    kills: int = 0
    refused: int = 0
    """Times that one of our errors named what is wrong."""
    counted: int = 0
    """Samples that were counted as skipped, invalid or missing."""

    def add(self, other: dict[str, int]) -> None:
        for name, value in other.items():
            setattr(self, name, getattr(self, name) + value)

    def to_dict(self) -> dict[str, int]:
        return asdict(self)


@dataclass
class Case:
    """What one fault is given: random numbers of its own, an empty folder, and what its class has prepared."""

    rng: Random
    folder: Path
    prepared: Any
    tally: Tally = field(default_factory=Tally)

    def refusal(self, error: Exception, *names: str) -> None:
        """Count an error that is allowed: one of ours, which names one of these files."""
        if not isinstance(error, GlyphFeedError):
            raise CrashError(f"{type(error).__name__}: {error}") from error
        if names and not any(name in str(error) for name in names):
            raise CrashError(f"the error names none of {names}: {error}") from error
        self.tally.refused += 1


@dataclass(frozen=True)
class Fault:
    """A class of faults; `run` injects one, and raises a FindingError if anything is wrong afterwards."""

    name: str
    about: str
    run: Callable[[Case], None]
    prepare: Callable[[Path], Any]
    share: int
    needs: tuple[str, ...] = ()
    """Modules without which the class is left out, and told."""


@dataclass(frozen=True)
class Parser:
    """A parser, its valid examples, and how one input is given to it."""

    name: str
    about: str
    examples: Callable[[], Sequence[bytes]]
    parse: Callable[[bytes, Path], bool]
    """True if the input was read to valid values, False if it was refused as it should be; raises otherwise."""
    traced: tuple[str, ...]
    """Ends of the names of modules whose lines guide the fuzzing."""
    kind: str = "bytes"
    share: int = 4
    needs: tuple[str, ...] = ()
    tokens: tuple[bytes, ...] = ()


KINDS = ("wrong sample", "silent skip", "crash", "hang", "leak")
CLASSES: dict[str, Fault | Parser] = {}


def nothing(folder: Path) -> None:
    """For a class that needs no preparation."""


def fault(
    name: str, about: str, *, share: int = 4, prepare: Callable[[Path], Any] = nothing, needs: tuple[str, ...] = ()
) -> Callable[[Callable[[Case], None]], Callable[[Case], None]]:
    """Register a class of faults; about `share` of a thousand faults are of this class."""

    def register(run: Callable[[Case], None]) -> Callable[[Case], None]:
        CLASSES[name] = Fault(name, about, run, prepare, share, needs)
        return run

    return register


def register(parser: Parser) -> None:
    CLASSES[parser.name] = parser


def random_for(seed: int, name: str, number: int) -> Random:
    """The random numbers of one case."""
    return Random(f"{seed}:{name}:{number}")


TALLIED = tuple(each.name for each in fields(Tally))


def refused(error: Exception, name: str) -> bool:
    """False, as a parser says it, if the error is one of ours and names the file; otherwise a finding."""
    if not isinstance(error, GlyphFeedError):
        raise error
    if name not in str(error):
        raise CrashError(f"the error does not name {name}: {error}") from error
    return False

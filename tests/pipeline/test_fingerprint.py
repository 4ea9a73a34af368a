"""fingerprint: it changes with whatever the output of a stage depends on, wherever that is, and with nothing else."""

import functools
import gc
import importlib
import io
import logging
import math
import os
import random
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FrameType, FunctionType
from typing import Any

import numba
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from omegaconf import OmegaConf
from PIL import Image
from rejection import rejects

import ocr
from ocr.errors import ConfigError
from ocr.geometry.kernels import compiled
from ocr.geometry.kernels.maps import draw_maps
from ocr.geometry.orientation import apply_orientation, orientation_matrix
from ocr.geometry.polygons import Polygons, move_points
from ocr.pipeline import fingerprint
from ocr.pipeline.decode import Decode, decode_pixels
from ocr.pipeline.fingerprint import NEVER_PIXELS, code_digest, digest, stages_digest
from ocr.pipeline.prefix import Letterbox
from ocr.pipeline.sample import Sample
from ocr.pipeline.targets import Targets

DEFAULT = (Decode(), Letterbox(64), Targets())
ORIENTATION_TAG = 0x0112

TABLE = None
GAIN = 2
log = logging.getLogger(__name__)
lock = threading.Lock()
opened = open(os.devnull)  # noqa: SIM115


@given(st.lists(st.binary(max_size=6), max_size=4), st.lists(st.binary(max_size=6), max_size=4))
def test_parts_cannot_run_together(left, right):
    assert (digest(*left) == digest(*right)) == (left == right)


def test_text_and_its_bytes_have_the_same_digest():
    assert digest("é", b"b") == digest("é".encode(), "b")
    assert len(digest()) == 32


def test_parameters_and_their_order_count():
    others = [
        (Decode(), Letterbox(641)),
        (Decode(scaled="off"), Letterbox(640)),
        (Decode(), Letterbox(640, interpolation="area")),
        (Letterbox(640), Decode()),
        (Decode(),),
        (Decode(), Letterbox(640), Targets()),
    ]
    digests = [stages_digest(stages) for stages in ((Decode(), Letterbox(640)), *others)]
    assert len(set(digests)) == len(digests)
    assert stages_digest((Decode(), Letterbox(640))) == digests[0]


# The default stages


def test_an_edit_of_any_function_that_a_page_passes_counts(monkeypatch):
    before = stages_digest(DEFAULT)
    functions = passed_by_a_page()
    assert {decode_pixels, Letterbox.__call__, Sample.moved, Polygons.moved, apply_orientation} <= functions
    for function in functions | {draw_maps.py_func, orientation_matrix, move_points}:
        with monkeypatch.context() as edit:
            edit.setattr(function, "__code__", edited(function.__code__))
            assert stages_digest(DEFAULT) != before, f"{function.__module__}.{function.__qualname__}"
    assert stages_digest(DEFAULT) == before


def edited(code: CodeType) -> CodeType:
    return code.replace(co_consts=(*code.co_consts, "edited"))


def passed_by_a_page() -> set[FunctionType]:
    """Functions that run while pages pass the default stages, but for those that load compiled code."""
    ran: set[CodeType] = set()

    def note(frame: FrameType, event: str, _: object) -> None:
        name = frame.f_globals.get("__name__", "")
        if event == "call" and name.startswith("ocr.") and not name.startswith((*NEVER_PIXELS, compiled.__name__)):
            ran.add(frame.f_code)

    pixels = np.full((300, 200, 3), 200, dtype=np.uint8)
    words = Polygons.pack([[[11, 7], [95.5, 9.25], [93, 41], [10, 38]], [[10, 100], [90, 160], [90, 100], [10, 160]]])
    turned = Image.Exif()
    turned[ORIENTATION_TAG] = 6
    kept = sys.getprofile()
    for format in ("JPEG", "PNG", "GIF"):
        stream = io.BytesIO()
        Image.fromarray(pixels).save(stream, format, exif=turned)
        page = Sample(0, "a", "a", words, encoded=stream.getvalue())
        sys.setprofile(note)
        try:
            for stage in (Decode(needed_side=64), *DEFAULT[1:]):
                page = stage(page)
        finally:
            sys.setprofile(kept)
    return {one for one in gc.get_objects() if type(one) is FunctionType and one.__code__ in ran}


def test_modules_that_never_decide_pixels_do_not_count(monkeypatch):
    before = stages_digest(DEFAULT)
    for function in (ConfigError.__init__, stages_digest):
        monkeypatch.setattr(function, "__code__", edited(function.__code__))
    assert stages_digest(DEFAULT) == before


# Code


STAGE = '''
import functools
from .other import FACTOR, wrapped

class Base:
    """A class."""
    shift = 2

    def apply(self, page):
        return page - self.shift

class Grow(Base):
    def __call__(self, page, side=3, *, flag=4):
        """A method."""
        if page in {5, 5.5, "a", "b"}:
            raise ValueError(f"too large: {page}")
        try:
            first(page)
        except KeyError:
            cached(page)
        return [self.apply(row * FACTOR + 6) for row in page], (lambda: 7), self.share

    @functools.cached_property
    def share(self):
        return 8

    @property
    def size(self):
        def inside():
            """A nested function."""
            return 9
        return inside

    @staticmethod
    @wrapped
    def turn(page):
        return page.turned(10)

def first(page):
    return page[11]

@functools.lru_cache
def cached(page):
    return page + 12
'''
OTHER = """
import functools
FACTOR = 13

def wrapped(function):
    @functools.wraps(function)
    def inner(*arguments):
        return function(*arguments) + 14
    return inner
"""


@pytest.fixture
def digest_of(write_module) -> Callable[..., str]:
    """The digest of the stage `Grow` once its module, and another that it imports, have these texts."""

    def make(text: str = STAGE, other: str = OTHER) -> str:
        write_module("other", other)
        return stages_digest((importlib.import_module(write_module("grow", text)).Grow(),))

    return make


def test_every_constant_of_the_code_counts(digest_of):
    texts = [[re.sub(rf"\b{number}\b", "99", text) for text in (STAGE, OTHER)] for number in range(1, 15)]
    assert texts[0] == [STAGE, OTHER]
    assert len({digest_of(*text) for text in texts}) == len(texts)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("if page in", "if page not in"),
        ('"b"', '"c"'),
        ("        except KeyError:\n            cached", "        except KeyError:\n            pass\n        cached"),
        ("self.apply", "self.other"),
        ("page - self", "page + self"),
        ("flag=4", "mode=4"),
        ("*, flag", "flag"),
        ("(Base)", "(Base, dict)"),
        ("    @wrapped\n", ""),
    ],
)
def test_an_edit_of_code_counts(digest_of, old, new):
    assert STAGE.count(old) == 1
    assert digest_of(STAGE.replace(old, new)) != digest_of()


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("A class", "Another class"),
        ("A method", "Another method"),
        ("A nested function", "Another nested function"),
        ("\n    def", "\n\n    # A comment.\n    def"),
        ("def first(", "def unused():\n    return 99\n\ndef first("),
    ],
)
def test_comments_docstrings_and_unused_code_do_not_count(digest_of, old, new):
    assert digest_of(STAGE.replace(old, new)) == digest_of()


IMPORTS = {
    "of a name": ("from .kernel import gain", "gain(page)"),
    "of a module": ("from . import kernel", "kernel.gain(page)"),
    "of a module in a package": ("import PACKAGE.kernel", "PACKAGE.kernel.gain(page)"),
    "of a module that is a value": ("from . import kernel", "getattr(kernel, 'ga' + 'in')(page)"),
    "of everything": ("from .kernel import *", "gain(page)"),
    "of a name in a function": ("", "here(page)\n\ndef here(page):\n    from .kernel import gain\n"),
    "of a module in a function": ("", "here(page)\n\ndef here(page):\n    from . import kernel as other\n"),
    "of nested code": ("", "here(page)\n\ndef here(page):\n    class A:\n        from .kernel import gain\n"),
    "behind many names": ("from . import kernel", f"[{', '.join(f'n{i}' for i in range(300))}, kernel.gain]"),
}


@pytest.mark.parametrize(("statement", "call"), IMPORTS.values(), ids=IMPORTS)
def test_imported_code_counts(write_module, statement, call):
    digests = []
    for amount in (2, 3, 2):
        write_module("kernel", f"def gain(page):\n    return page * {amount}\n")
        text = f"{statement}\n\nclass Grow:\n    def __call__(self, page):\n        return {call}\n"
        digests.append(stages_digest((importlib.import_module(write_module("grow", text)).Grow(),)))
    assert digests[0] == digests[2] != digests[1]


def test_of_a_module_only_what_is_read_counts(write_module):
    digests = []
    for used, unused in ((2, 3), (2, 4), (9, 3)):
        write_module("kernel", f"USED, UNUSED, OPENED = {used}, {unused}, open(__file__)\n")
        text = "from . import kernel\n\nclass Grow:\n    def __call__(self):\n        return kernel.USED\n"
        digests.append(stages_digest((importlib.import_module(write_module("grow", text)).Grow(),)))
    assert digests[0] == digests[1] != digests[2]


def test_a_missing_import_in_a_function_is_no_error():
    def work(page):
        import no_such_module

        return no_such_module.change(page)

    assert digest_with(work)


def test_code_counts_as_it_is_loaded_and_not_as_its_file_was_edited_since(write_module):
    text, other = (f"class Grow:\n    def __call__(self, page):\n        return page * {by}\n" for by in (2, 3))
    module = importlib.import_module(write_module("grow", text))
    Path(module.__file__).write_text(other)
    loaded = stages_digest((module.Grow(),))
    assert loaded == stages_digest((importlib.import_module(write_module("grow", text)).Grow(),))
    assert loaded != stages_digest((importlib.import_module(write_module("grow", other)).Grow(),))


def test_running_or_tracing_code_does_not_change_its_digest():
    def work(page):
        return sum(row * GAIN for row in range(page))

    before = digest_with(work)
    kept = sys.gettrace()
    sys.settrace(lambda *_: None)
    try:
        for _ in range(100):
            work(50)
        assert digest_with(work) == before
    finally:
        sys.settrace(kept)
    assert digest_with(work) == before


def table(changed: int | None = None) -> Any:
    made = np.zeros(5000, dtype=np.uint8)
    if changed is not None:
        made[changed] = 1
    return made


def test_a_global_that_code_reads_counts_by_all_of_its_value(monkeypatch):
    digests = []
    for changed in (None, 2500, None):
        monkeypatch.setitem(globals(), "TABLE", table(changed))
        digests.append(digest_with(lambda page: TABLE[page]))
    assert digests[0] == digests[2] != digests[1]


def test_a_global_with_the_name_of_an_attribute_does_not_count(monkeypatch):
    def work(page):
        return page.opened + page.GAIN + GAIN.real

    before = digest_with(work)
    monkeypatch.setitem(globals(), "opened", 3)
    assert digest_with(work) == before


def test_code_can_use_loggers_and_locks():
    held = threading.Lock()

    def work(page):
        with lock, held:
            log.info("a page")
        return page

    assert digest_with(work)


# State


@dataclass
class Holding:
    """A stage with one parameter."""

    value: Any

    def __call__(self, sample):
        return sample


class State:
    def __init__(self, **state: Any) -> None:
        vars(self).update(state)


@dataclass(frozen=True, slots=True)
class Slotted:
    lookup: Any = field(default=None, repr=False)


def digest_with(value: Any) -> str:
    return stages_digest((Holding(value),))


def scaled(by: int) -> Any:
    return lambda page: page * by


def within_itself(depth: int) -> Any:
    around: dict[str, Any] = {"depth": depth}
    around["self"] = around
    return around


def neighbours(name: str) -> Any:
    one, other = State(name=name), State()
    one.others, other.others = {other}, {one}
    return one


DIFFERENT = {
    "a table of 5,000 entries": (table(), table(2500)),
    "a table of objects": (np.array(["a", None], dtype=object), np.array(["b", None], dtype=object)),
    "a number of NumPy": (np.float32(1), np.float64(1)),
    "a tensor in half precision": (torch.zeros(2, dtype=torch.bfloat16), torch.ones(2, dtype=torch.bfloat16)),
    "an integer and a float": (2, 2.0),
    "a zero and its negative": (0.0, -0.0),
    "the order of a dictionary": ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
    "a set": ({"a", "b"}, {"a", "c"}),
    "what a function closes over": (scaled(2), scaled(3)),
    "a partial function": (functools.partial(max, 2), functools.partial(max, 3)),
    "compiled functions": (math.sqrt, math.cbrt),
    "methods": (np.zeros(2).max, np.zeros(3).max),
    "methods of other stages": (Holding(1).__call__, Holding(2).__call__),
    "classes": (State, Holding),
    "an object in an object": (State(inner=State(a=1)), State(inner=State(a=2))),
    "a slot": (Slotted(1), Slotted(2)),
    "data that contain themselves": (within_itself(1), within_itself(2)),
    "objects in sets that contain each other": (neighbours("a"), neighbours("b")),
    "a config": (OmegaConf.create([1, 2]), OmegaConf.create([1, 3])),
    "kernels with other options": (numba.njit(opposite := lambda x: -x), numba.njit(fastmath=True)(opposite)),
    "kernels with other code": (numba.njit(lambda x: -x), numba.njit(lambda x: x)),
}


@pytest.mark.parametrize(("one", "other"), DIFFERENT.values(), ids=DIFFERENT)
def test_parameters_that_differ_have_different_digests(one, other):
    assert digest_with(one) == digest_with(one)
    assert digest_with(one) != digest_with(other)


def test_equal_parameters_have_equal_digests_whatever_their_address():
    for make in (
        table,
        lambda: scaled(2),
        lambda: State(a=[1, {"b": None}]),
        lambda: functools.partial(scaled(2), 3),
        lambda: within_itself(1),
        lambda: neighbours("a"),
        lambda: {"a", "b", 3, None},
        lambda: OmegaConf.create({"a": [1]}),
    ):
        kept_apart = [make(), make()]
        assert digest_with(kept_apart[0]) == digest_with(kept_apart[1])


def closing_over(value: Any) -> Any:
    return lambda page: value


FILE = "_io.TextIOWrapper"
REFUSED = {
    "an open file": (lambda: Holding(opened), "Holding.value", FILE),
    "a lock": (lambda: Holding(threading.Lock()), "Holding.value", "_thread.lock"),
    "a generator": (lambda: Holding(row for row in "ab"), "Holding.value", "builtins.generator"),
    "a random generator": (lambda: Holding(random.Random(0)), "Holding.value", "random.Random"),
    "one of torch": (lambda: Holding(torch.Generator()), "Holding.value", "torch._C.Generator"),
    "in a slot": (lambda: Slotted(opened), "Slotted.lookup", FILE),
    "in a dictionary": (lambda: Holding({"a": [1, opened]}), "Holding.value['a'][1]", FILE),
    "in a closure": (lambda: Holding(closing_over(opened)), "Holding.value, the closed-over value", FILE),
    "a global": (lambda: Holding(lambda page: opened.read()), "Holding.value, the global opened", FILE),
    "an attribute": (lambda: Holding(State(inner=opened)), "Holding.value.inner", FILE),
}


@pytest.mark.parametrize(("make", "where", "kind"), REFUSED.values(), ids=REFUSED)
def test_what_two_runs_cannot_compare_is_refused_with_its_place(make, where, kind):
    with rejects(ConfigError, setting=where, value=kind):
        stages_digest((make(),))


class Careful:
    """Leaves out what it makes itself."""

    def __init__(self, gain: int) -> None:
        self.gain, self.lock = gain, threading.Lock()

    def __getstate__(self) -> dict[str, Any]:
        return {"gain": self.gain}


class Loaded(Careful):
    """Says itself what counts."""

    def __getstate__(self) -> dict[str, Any]:
        return vars(self)

    def fingerprint_parts(self) -> Any:
        return {"gain": self.gain}


@pytest.mark.parametrize("kind", [Careful, Loaded])
def test_a_stage_can_say_what_counts_of_its_attributes(kind):
    assert stages_digest((kind(1),)) == stages_digest((kind(1),)) != stages_digest((kind(2),))


# Libraries


@pytest.fixture
def install(tmp_path, monkeypatch) -> Iterator[Callable[..., str]]:
    """Install a library, and another that it requires, and return the digest of a stage that uses it."""
    site = tmp_path / "site-packages"
    site.mkdir()
    monkeypatch.syspath_prepend(str(site))

    def make(version: str = "1", required: str = "1", *, loaded: str = "", code: str = "") -> str:
        for name, number, more in (
            ("glyph-lib", version, "Requires-Dist: Glyph.Base>=1\n"),
            ("glyph_base", required, ""),
        ):
            about = site / f"{name.replace('-', '_')}-0.dist-info"
            about.mkdir(exist_ok=True)
            (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {number}\n{more}")
        (site / "glyph_lib.py").write_text(f"def change(page):\n    return page{code}\n{loaded}")
        sys.modules.pop("glyph_lib", None)
        forget_libraries()
        importlib.invalidate_caches()
        library = importlib.import_module("glyph_lib")
        return digest_with(lambda page: library.change(page))

    yield make
    sys.modules.pop("glyph_lib", None)
    forget_libraries()


def forget_libraries() -> None:
    """As in a new process."""
    fingerprint._library.cache_clear()
    fingerprint._is_followed.cache_clear()


def test_a_library_counts_by_its_version_and_those_it_requires(install):
    before = install()
    assert install(code=" + 1") == before
    assert install(version="2") != before
    assert install(required="2") != before


def test_a_library_counts_by_the_version_that_is_loaded(install):
    assert install(loaded="__version__ = '1'\n") != install(loaded="__version__ = '2'\n")


# Processes


PROGRAM = """
import multiprocessing, sys
sys.path[:0] = {path!r}
if {first!r}:
    __import__({first!r})
from dataclasses import dataclass
import ocr
from ocr.pipeline.fingerprint import stages_digest
from ocr.pipeline.decode import Decode
from ocr.pipeline.prefix import Letterbox
from ocr.pipeline.targets import Targets

unrelated = open(__import__("os").devnull)
WORDS = {{"one", "two", "three", "four"}}

@dataclass(frozen=True)
class Grow:
    words: frozenset = frozenset(WORDS)
    def __call__(self, page):
        from ocr.geometry.kernels.boxes import __doc__ as text
        return page if page in {{"five", "six", "seven"}} else WORDS

def answer(stage):
    return stages_digest((stage,))

if __name__ == "__main__":
    print(ocr.__file__, stages_digest((Decode(), Letterbox(64), Targets())), answer(Grow()))
    if {has_worker}:
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            print(pool.apply(answer, (Grow(),)))
"""


def answer(folder: Path, seed: int = 0, first: str = "", site: str = "", has_worker: bool = False) -> list[str]:
    """Where a script imports the package from, its digest of the default stages, and of a stage of its own."""
    script = folder / f"script_{seed}.py"
    path = [site, *sys.path] if site else sys.path
    script.write_text(PROGRAM.format(path=path, first=first, has_worker=has_worker))
    environment = os.environ | {"PYTHONHASHSEED": str(seed)}
    run = subprocess.run([sys.executable, "-B", script], env=environment, capture_output=True, text=True, check=True)
    return run.stdout.split()


def test_the_digest_is_the_same_in_every_process_whatever_was_imported_before(tmp_path):
    one = answer(tmp_path, seed=1)
    *other, in_worker = answer(tmp_path, seed=2, first="ocr.geometry.kernels.boxes", has_worker=True)
    assert one == other
    assert one[1:] == [stages_digest(DEFAULT), in_worker]


def test_the_installed_package_counts_by_its_code_as_a_checkout_does(tmp_path):
    site = tmp_path / "site-packages"
    shutil.copytree(Path(ocr.__file__).parent, site / "ocr", ignore=shutil.ignore_patterns("__pycache__"))
    (site / "glyphfeed-9.dist-info").mkdir()
    (site / "glyphfeed-9.dist-info" / "METADATA").write_text("Name: ocr\nVersion: 9\n")
    prefix = site / "ocr" / "pipeline" / "prefix.py"
    for is_edited in (False, True):
        if is_edited:
            assert "spare_x // 2" in prefix.read_text()
            prefix.write_text(prefix.read_text().replace("spare_x // 2", "spare_x // 3"))
        file, found, *_ = answer(tmp_path, site=str(site))
        assert file == str(site / "ocr" / "__init__.py")
        assert (found == stages_digest(DEFAULT)) is not is_edited


def test_a_module_counts_with_all_that_it_holds(write_module):
    digests = set()
    for factor in (2, 3):
        write_module("kernel", f"FACTOR = {factor}\n")
        module = write_module("middle", "from .kernel import FACTOR\nimport PACKAGE.middle\n")
        importlib.import_module(module)
        digests.add(code_digest(module))
    assert len(digests | {code_digest("sys"), code_digest("builtins")}) == 4

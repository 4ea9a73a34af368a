"""reach: whatever the output of a stage depends on changes its digest, wherever it is; nothing else does."""

import cmath
import functools
import importlib
import logging
import math
import os
import random
import sys
import threading
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numba
import numpy as np
import pytest
import torch
from omegaconf import OmegaConf
from rejection import rejects

from ocr.errors import ConfigError
from ocr.pipeline.fingerprint import stages_digest

TABLE = np.zeros(5000, dtype=np.uint8)
GAIN = 2
log = logging.getLogger(__name__)
lock = threading.Lock()
opened = open(os.devnull)  # noqa: SIM115
draws = np.random.default_rng(0)


@dataclass
class Holding:
    """A stage with one parameter."""

    value: Any

    def __call__(self, sample):
        return sample


def digest_of(value: Any) -> str:
    return stages_digest((Holding(value),))


class State:
    def __init__(self, **state: Any) -> None:
        vars(self).update(state)


def table(changed: int | None = None) -> Any:
    made = np.zeros(5000, dtype=np.uint8)
    if changed is not None:
        made[changed] = 1
    return made


def scaled(by: int) -> Any:
    return lambda page: page * by


def shifted(by: int) -> Any:
    return lambda page: page + by


def nested(depth: int) -> Any:
    around: dict[str, Any] = {"depth": depth}
    around["self"] = around
    return around


@functools.lru_cache
def remembered(page):
    return page + GAIN


DIFFERENT = {
    "a table of 5,000 entries": (table(), table(2500)),
    "the type of a table": (table(), table().view(np.int8)),
    "the shape of a table": (table(), table().reshape(50, 100)),
    "a table of objects": (np.array(["a", None], dtype=object), np.array(["b", None], dtype=object)),
    "a number of NumPy": (np.float32(1), np.float64(1)),
    "a tensor": (torch.zeros(5000), torch.zeros(5000).index_fill(0, torch.tensor(2500), 1)),
    "a tensor in half precision": (torch.zeros(2, dtype=torch.bfloat16), torch.ones(2, dtype=torch.bfloat16)),
    "an integer and a float": (2, 2.0),
    "a zero and its negative": (0.0, -0.0),
    "the order of a dictionary": ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
    "a set": ({"a", "b"}, {"a", "c"}),
    "functions": (scaled(2), shifted(2)),
    "what a function closes over": (scaled(2), scaled(3)),
    "a partial function": (functools.partial(max, 2), functools.partial(max, 3)),
    "a compiled function of another module": (math.sqrt, cmath.sqrt),
    "a partial function of another": (functools.partial(scaled(2), 1), functools.partial(shifted(2), 1)),
    "methods": (np.zeros(2).max, np.zeros(2).min),
    "builtin functions": (abs, max),
    "classes": (State, Holding),
    "a nested object": (State(inner=State(a=1)), State(inner=State(a=2))),
    "data that contain themselves": (nested(1), nested(2)),
    "a config": (OmegaConf.create([1, 2]), OmegaConf.create([1, 3])),
    "kernels with other options": (numba.njit(abs_of := lambda x: -x), numba.njit(fastmath=True)(abs_of)),
    "kernels with other code": (numba.njit(lambda x: -x), numba.njit(lambda x: x)),
}


@pytest.mark.parametrize(("one", "other"), DIFFERENT.values(), ids=DIFFERENT)
def test_parameters_that_differ_have_different_digests(one, other):
    assert digest_of(one) == digest_of(one)
    assert digest_of(one) != digest_of(other)


def test_equal_parameters_have_equal_digests_whatever_their_address():
    makes = [lambda: scaled(2), table, lambda: State(a=[1, {"b": None}]), lambda: functools.partial(scaled(2), 3)]
    for make in [*makes, lambda: nested(1), lambda: {"a", "b", 3, None}, lambda: OmegaConf.create({"a": [1]})]:
        kept_apart = [make(), make()]
        assert digest_of(kept_apart[0]) == digest_of(kept_apart[1])


@pytest.mark.parametrize(
    ("function", "name", "value"),
    [
        (lambda page: TABLE[page], "TABLE", table(2500)),
        (lambda page: [GAIN * row for row in page], "GAIN", 3),
        (lambda page: remembered(page), "GAIN", 3),
        (functools.partial(remembered), "GAIN", 3),
        (property(lambda self: GAIN), "GAIN", 3),
        (functools.cached_property(lambda self: GAIN), "GAIN", 3),
    ],
    ids=["an array", "in a comprehension", "behind a cached function", "behind a partial", "property", "cached"],
)
def test_a_global_that_code_uses_counts_by_its_value(monkeypatch, function, name, value):
    before, unused = digest_of(function), digest_of(lambda page: page)
    monkeypatch.setitem(globals(), name, value)
    assert digest_of(function) != before
    assert digest_of(lambda page: page) == unused


IMPORTS = {
    "on top": ("from HELPER import gain", "gain(page)"),
    "the module": ("import HELPER", "HELPER.gain(page)"),
    "the module as a value": ("import HELPER", "getattr(HELPER, 'ga' + 'in')(page)"),
    "in the method": ("", "__import__ and import_here(page)\n\ndef import_here(page):\n    from HELPER import gain\n"),
    "the module in the method": ("", "import_here(page)\n\ndef import_here(page):\n    import HELPER as helper\n"),
    "everything": ("from HELPER import *", "gain(page)"),
}


@pytest.mark.parametrize(("statement", "call"), IMPORTS.values(), ids=IMPORTS)
def test_a_module_beside_that_of_the_stage_counts_however_it_is_imported(tmp_path, monkeypatch, statement, call):
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    names = {"HELPER": f"helper_of_{tmp_path.name}", "STAGE": f"stage_of_{tmp_path.name}"}
    stage = f"{statement}\n\nclass Grow:\n    def __call__(self, page):\n        return {call}\n"
    digests = []
    for amount in (2, 3, 2):
        (tmp_path / f"{names['STAGE']}.py").write_text(stage.replace("HELPER", names["HELPER"]))
        (tmp_path / f"{names['HELPER']}.py").write_text(f"def gain(page):\n    return page * {amount}\n")
        for module in names.values():
            sys.modules.pop(module, None)
        importlib.invalidate_caches()
        digests.append(stages_digest((importlib.import_module(names["STAGE"]).Grow(),)))
    assert digests[0] == digests[2] != digests[1]


def test_code_counts_as_it_is_loaded_and_not_as_its_file_was_edited_since(write_module):
    text, edited = (f"class Grow:\n    def __call__(self, page):\n        return page * {by}\n" for by in (2, 3))
    module = importlib.import_module(write_module("grow", text))
    with open(module.__file__, "w") as stream:
        stream.write(edited)
    loaded = stages_digest((module.Grow(),))
    assert loaded == stages_digest((importlib.import_module(write_module("grow", text)).Grow(),))
    assert loaded != stages_digest((importlib.import_module(write_module("grow", edited)).Grow(),))


def test_running_or_tracing_code_does_not_change_its_digest():
    def work(page):
        return sum(row * GAIN for row in range(page))

    before = digest_of(work)
    kept = sys.gettrace()
    sys.settrace(lambda *_: None)
    try:
        for _ in range(100):
            work(50)
        assert digest_of(work) == before
    finally:
        sys.settrace(kept)


@dataclass(frozen=True, slots=True)
class Slotted:
    lookup: Any = field(default=None, repr=False)


def closing_over(value: Any) -> Any:
    return lambda page: value


REFUSED = {
    "an open file": (lambda: Holding(opened), "Holding.value", "_io.TextIOWrapper"),
    "a lock": (lambda: Holding(threading.Lock()), "Holding.value", "_thread.lock"),
    "a generator": (lambda: Holding(row for row in "ab"), "Holding.value", "builtins.generator"),
    "a random generator": (
        lambda: Holding(np.random.default_rng(0)),
        "Holding.value",
        "numpy.random._generator.Generator",
    ),
    "another one": (lambda: Holding(random.Random(0)), "Holding.value", "random.Random"),
    "in a slot that is not shown": (lambda: Slotted(opened), "Slotted.lookup", "_io.TextIOWrapper"),
    "in a dictionary": (lambda: Holding({"a": [1, opened]}), "Holding.value['a'][1]", "_io.TextIOWrapper"),
    "closed over": (lambda: Holding(closing_over(opened)), "Holding.value, the closed-over value", "_io.TextIOWrapper"),
    "global": (lambda: Holding(lambda page: opened.read()), "Holding.value, the global opened", "_io.TextIOWrapper"),
    "an attribute": (lambda: Holding(State(inner=opened)), "Holding.value.inner", "_io.TextIOWrapper"),
}


@pytest.mark.parametrize(("make", "where", "kind"), REFUSED.values(), ids=REFUSED)
def test_what_two_runs_cannot_compare_is_refused_with_its_place_and_the_cure(make, where, kind):
    with rejects(ConfigError, setting=where, value=kind):
        stages_digest((make(),))


class Careful:
    """Leaves out what it makes itself."""

    def __init__(self, gain: int) -> None:
        self.gain, self.lock = gain, threading.Lock()

    def __getstate__(self) -> dict[str, Any]:
        return {"gain": self.gain}


def test_what_a_stage_leaves_out_of_its_state_is_no_part_of_its_digest():
    assert stages_digest((Careful(1),)) == stages_digest((Careful(1),)) != stages_digest((Careful(2),))


class Loaded(Careful):
    """Says itself what counts."""

    def __getstate__(self) -> dict[str, Any]:
        return vars(self)

    def fingerprint_parts(self) -> Any:
        return {"gain": self.gain}


def test_a_stage_may_say_what_counts_of_its_attributes():
    assert stages_digest((Loaded(1),)) == stages_digest((Loaded(1),)) != stages_digest((Loaded(2),))
    assert stages_digest((Loaded(1),)) != stages_digest((Careful(1),))


def test_loggers_and_locks_may_be_used_by_code():
    def work(page):
        with lock:
            log.info("a page")
        return page

    assert digest_of(work)


def test_a_namespace_of_values_counts_by_what_it_holds():
    assert digest_of(SimpleNamespace(a=1)) != digest_of(SimpleNamespace(a=2))

"""fingerprint: it changes with whatever the output depends on, and with nothing else."""

import importlib
import os
import subprocess
import sys
from importlib.metadata import version

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ocr.geometry import polygons
from ocr.pipeline.decode import Decode
from ocr.pipeline.fingerprint import code_digest, digest, stages_digest
from ocr.pipeline.prefix import Letterbox
from ocr.pipeline.reach.distributions import distributions_of
from ocr.pipeline.reach.walk import Reach
from ocr.pipeline.targets import Targets

STAGE = "from dataclasses import dataclass\n\n@dataclass(frozen=True)\nclass Grow:\n    by: int = 2\n"


def digest_of(module):
    importlib.import_module(module)
    return code_digest(module)


@given(st.lists(st.binary(max_size=6), max_size=4), st.lists(st.binary(max_size=6), max_size=4))
def test_parts_cannot_run_together(left, right):
    assert (digest(*left) == digest(*right)) == (left == right)


def test_text_and_its_bytes_have_the_same_digest():
    assert digest("é", b"b") == digest("é".encode(), "b")
    assert len(digest()) == 32


def test_parameters_and_their_order_count():
    base = stages_digest((Decode(), Letterbox(640)))
    assert base == stages_digest((Decode(), Letterbox(640)))
    others = [
        (Decode(), Letterbox(641)),
        (Decode(scaled="off"), Letterbox(640)),
        (Decode(), Letterbox(640, interpolation="area")),
        (Letterbox(640), Decode()),
        (Decode(),),
        (Decode(), Letterbox(640), Targets()),
    ]
    assert len({base, *map(stages_digest, others)}) == len(others) + 1


def test_a_changed_line_counts(write_module):
    before = digest_of(write_module("grow", STAGE))
    assert digest_of(write_module("grow", STAGE)) == before
    assert digest_of(write_module("grow", STAGE.replace("= 2", "= 3"))) != before


def test_a_changed_line_changes_the_digest_of_the_stage(write_module):
    digests = []
    for body in ("return 1", "return 2"):
        module = write_module("grow", f"{STAGE}    def __call__(self):\n        {body}\n")
        digests.append(stages_digest((importlib.import_module(module).Grow(),)))
    assert digests[0] != digests[1]


def test_comments_and_blank_lines_do_not_count(write_module):
    before = digest_of(write_module("grow", STAGE))
    assert digest_of(write_module("grow", f"# A remark.\n\n\n{STAGE}  # Another one.\n")) == before


WORDED = '''"""A module."""
import logging, warnings
log = logging.getLogger(__name__)
class Odd(ValueError):
    """An error."""
class Grow:
    """A stage."""
    by: int = 2
    """A field."""
    def __call__(self, page, side=3):
        """A method."""
        if page > 4:
            raise Odd(f"too large: {page}", 7) from None
        if page < -4:
            raise Odd("too" + " small: %d" % page)
        if page == -4:
            raise Odd("too {}".format(page), hint="a hint" if side else "none")
        log.warning("grows by %s", side)
        warnings.warn("grows", stacklevel=2)
        _warn_once(page, f"a page of {page}")
        assert page, "no page"
        return {"mode": "fast"}[str(page) or "mode"] * abs(page)
'''


@pytest.mark.parametrize(
    "old",
    [
        '"""A module."""\n',
        '"""An error."""',
        '"""A stage."""',
        '"""A field."""',
        '"""A method."""',
        "too large: {page}",
        '"too" + ',
        " small: %d",
        "too {}",
        "a hint",
        "grows by %s",
        '"grows"',
        "a page of {page}",
        "no page",
    ],
)
def test_rewording_docstrings_errors_and_log_messages_does_not_count(write_module, old):
    before = digest_of(write_module("grow", WORDED))
    new = "" if old.endswith(("\n", " ")) else old.replace(old.strip('"'), f"{old.strip(chr(34))} in other words")
    assert WORDED.count(old) == 1
    assert digest_of(write_module("grow", WORDED.replace(old, new))) == before


@pytest.mark.parametrize("body", ["pass", "...", '"""An error."""\n    pass'])
def test_a_docstring_may_take_the_place_of_pass(write_module, body):
    before = digest_of(write_module("grow", WORDED))
    assert digest_of(write_module("grow", WORDED.replace('"""An error."""', body))) == before


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("int = 2", "int = 3"),
        ("page > 4", "page >= 4"),
        ("side=3", "side=4"),
        ("abs(page)", "int(page)"),
        ('"fast"', '"slow"'),
        ('or "mode"', 'or "other"'),
        ("raise Odd(f", "raise ValueError(f"),
        (", 7)", ", 8)"),
        ('"grows by %s", side', '"grows by %s", page'),
        ("stacklevel=2", "stacklevel=3"),
        ("_warn_once(page", "_warn_once(side"),
        ("assert page", "assert side"),
        ("(ValueError)", "(KeyError)"),
        ("by: int", "by: float"),
    ],
)
def test_everything_else_counts(write_module, old, new):
    before = digest_of(write_module("grow", WORDED))
    assert WORDED.count(old) == 1
    assert digest_of(write_module("grow", WORDED.replace(old, new))) != before


@pytest.mark.parametrize(
    "statement",
    [
        "from PACKAGE.kernel import FACTOR",
        "from .kernel import FACTOR",
        "from PACKAGE import kernel",
        "from . import kernel",
        "import PACKAGE.kernel",
    ],
)
def test_what_a_module_imports_counts_even_if_it_is_a_constant(write_module, statement):
    digests = []
    for factor in (2, 3):
        write_module("kernel", f"FACTOR = {factor}\n")
        write_module("middle", f"{statement}\n")
        digests.append(digest_of(write_module("grow", f"from PACKAGE.middle import *\n{STAGE}")))
    assert digests[0] != digests[1]


def test_modules_that_import_each_other_come_to_an_end(write_module):
    write_module("other", "import PACKAGE.grow\n")
    assert digest_of(write_module("grow", f"import PACKAGE.other\n{STAGE}"))


def reached_by(stage):
    reach = Reach()
    reach.add(stage, "stage")
    return set(reach.followed)


def test_a_stage_of_another_package_depends_on_the_one_it_extends(write_module):
    module = write_module("wide", "from ocr.pipeline.prefix import Letterbox\n\nclass Wide(Letterbox):\n    pass\n")
    assert {module, "ocr.pipeline.prefix"} <= reached_by(importlib.import_module(module).Wide())


def test_a_stage_of_another_package_depends_on_what_it_imports_from_ours(write_module, monkeypatch):
    text = "from ocr.geometry.polygons import Polygons\n\nclass Count:\n    def __call__(self, page):\n"
    text += "        return Polygons.pack(page).solid\n"
    stage = importlib.import_module(write_module("count", text)).Count()
    before = stages_digest((stage,))
    monkeypatch.setattr(polygons, "MIN_AREA", 0.25)
    assert stages_digest((stage,)) != before


def test_methods_of_the_sample_count_although_no_stage_names_its_class(monkeypatch):
    class Move:
        def __call__(self, sample):
            return sample.moved(sample.image, 2)

    before = stages_digest((Move(),))
    monkeypatch.setattr(polygons.Polygons, "moved", lambda self, matrix: self)
    assert stages_digest((Move(),)) != before


def test_the_maps_depend_on_the_kernels_that_draw_them():
    followed = reached_by(Targets())
    assert {"ocr.geometry.kernels.maps", "ocr.pipeline.targets"} <= followed
    assert not any(name.startswith(("torch", "numba", "ocr.datasets", "ocr.tools", "ocr.errors")) for name in followed)


def test_a_module_without_a_file_goes_by_its_name():
    assert code_digest("sys") != code_digest("builtins")


def test_installed_libraries_count_by_their_versions_and_those_they_require():
    assert f"numpy=={version('numpy')}" in distributions_of("numpy.linalg")
    assert f"pillow=={version('pillow')}" in distributions_of("PIL.Image")
    assert any(name.startswith("opencv") for name in distributions_of("cv2"))
    assert {name.split("==")[0] for name in distributions_of("numba")} >= {"numba", "llvmlite", "numpy"}
    assert not distributions_of("ocr.pipeline")
    assert not distributions_of("no_such_module")


SCRIPT = """
import multiprocessing
from dataclasses import dataclass
from ocr.pipeline.fingerprint import stages_digest

@dataclass(frozen=True)
class Grow:
    by: int = 2

def answer(stage):
    return stages_digest((stage,))

if __name__ == "__main__":
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        print(answer(Grow()), pool.apply(answer, (Grow(),)), answer(Grow(3)))
"""


def test_a_stage_in_a_script_is_the_same_in_the_workers_of_that_script(tmp_path):
    (tmp_path / "script.py").write_text(SCRIPT)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    run = subprocess.run(
        [sys.executable, tmp_path / "script.py"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=900,
        check=True,
    )
    here, in_worker, other = run.stdout.split()
    assert here == in_worker != other

"""reach: the same digest in every process, and for a checkout and an installed package."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import ocr
from ocr.pipeline.decode import Decode
from ocr.pipeline.fingerprint import stages_digest
from ocr.pipeline.prefix import Letterbox
from ocr.pipeline.targets import Targets

PROGRAM = """
import sys
sys.path[:0] = {path!r}
if {first!r}:
    __import__({first!r})
from dataclasses import dataclass
import numpy as np
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

steps = (Letterbox(),)
if {with_albumentations}:
    import albumentations as A
    from ocr.datasets.transforms import DBTransforms
    steps = DBTransforms([A.Equalize(p=1), A.CenterCrop(32, 32), A.HorizontalFlip(p=1)]).fixed
import ocr
print(ocr.__file__)
print(stages_digest((Decode(), Letterbox(), Targets())))
print(stages_digest((Decode(), *steps, Targets(), Grow())))
"""


def answer(seed: int = 0, first: str = "", with_albumentations: bool = False, site: str = "") -> list[str]:
    """Where another process imports the package from, and its digests of the default stages and of some of its own."""
    path = [site, *sys.path] if site else sys.path
    program = PROGRAM.format(path=path, first=first, with_albumentations=with_albumentations)
    environment = os.environ | {"PYTHONHASHSEED": str(seed)}
    run = subprocess.run([sys.executable, "-Bc", program], env=environment, capture_output=True, text=True, check=True)
    return run.stdout.split()


@pytest.mark.parametrize("with_albumentations", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_the_digest_is_the_same_in_every_process_whatever_was_imported_before(with_albumentations):
    first, second = (
        answer(seed, imported, with_albumentations) for seed, imported in ((1, ""), (2, "ocr.geometry.kernels.boxes"))
    )
    assert first == second
    assert first[1] == stages_digest((Decode(), Letterbox(), Targets()))


def test_the_installed_package_counts_by_its_code_as_a_checkout_does(tmp_path):
    site = tmp_path / "site-packages"
    shutil.copytree(Path(ocr.__file__).parent, site / "ocr", ignore=shutil.ignore_patterns("__pycache__"))
    (site / "glyphfeed-9.dist-info").mkdir()
    (site / "glyphfeed-9.dist-info" / "RECORD").write_text("ocr/__init__.py,sha256=0,0\n")
    prefix = site / "ocr" / "pipeline" / "prefix.py"
    here = stages_digest((Decode(), Letterbox(), Targets()))
    for is_edited in (False, True):
        if is_edited:
            prefix.write_text(prefix.read_text().replace("spare_x // 2", "spare_x // 3"))
        file, digest, _ = answer(site=str(site))
        assert file == str(site / "ocr" / "__init__.py")
        assert (digest == here) is not is_edited

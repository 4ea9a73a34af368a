"""reach: the same digest in every process, and for a checkout and an installed package."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

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
import albumentations as A
import numpy as np
from ocr.datasets.transforms import DBTransforms
from ocr.pipeline.fingerprint import stages_digest
from ocr.pipeline.decode import Decode
from ocr.pipeline.targets import Targets

unrelated = open(__import__("os").devnull)
WORDS = {{"one", "two", "three", "four"}}

@dataclass(frozen=True)
class Grow:
    words: frozenset = frozenset(WORDS)
    def __call__(self, page):
        from ocr.geometry.kernels.boxes import __doc__ as text
        return page if page in {{"five", "six", "seven"}} else WORDS

steps = DBTransforms([A.Equalize(p=1), A.CenterCrop(32, 32), A.HorizontalFlip(p=1)]).fixed
print(stages_digest((Decode(), *steps, Targets(), Grow())))
"""


def test_the_digest_is_the_same_in_every_process_whatever_was_imported_before():
    answers = set()
    for seed, first in (("1", ""), ("2", "ocr.geometry.kernels.boxes"), ("3", "ocr.tools.preprocess")):
        program = PROGRAM.format(path=sys.path, first=first)
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        run = subprocess.run(
            [sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=900, check=True
        )
        answers.add(run.stdout)
    assert len(answers) == 1


DEFAULT = """
import sys
sys.path[:0] = {path!r}
import ocr
from ocr.pipeline.decode import Decode
from ocr.pipeline.fingerprint import stages_digest
from ocr.pipeline.prefix import Letterbox
from ocr.pipeline.targets import Targets
print(ocr.__file__)
print(stages_digest((Decode(), Letterbox(), Targets())))
"""


def test_the_installed_package_counts_by_its_code_as_a_checkout_does(tmp_path):
    site = tmp_path / "site-packages"
    shutil.copytree(Path(ocr.__file__).parent, site / "ocr", ignore=shutil.ignore_patterns("__pycache__"))
    (site / "glyphfeed-9.dist-info").mkdir()
    (site / "glyphfeed-9.dist-info" / "RECORD").write_text("ocr/__init__.py,sha256=0,0\n")
    answers = []
    for edited in (False, True):
        prefix = site / "ocr" / "pipeline" / "prefix.py"
        prefix.write_text(prefix.read_text().replace("spare_x // 2", "spare_x // 3") if edited else prefix.read_text())
        program = DEFAULT.format(path=[str(site), *sys.path])
        run = subprocess.run([sys.executable, "-Bc", program], capture_output=True, text=True, timeout=900, check=True)
        file, digest = run.stdout.split()
        assert file == str(site / "ocr" / "__init__.py")
        answers.append(digest)
    here = stages_digest((Decode(), Letterbox(), Targets()))
    assert answers[0] == here != answers[1]

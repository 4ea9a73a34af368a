"""What works where `fcntl` and `resource` do not exist, as on Windows: a process in which importing them fails."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
WITHOUT = """
import sys
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name in ("fcntl", "resource"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Missing())
sys.argv[0] = "ocr"
"""
PAGES = """
import ocr
from pathlib import Path
from ocr import Detector, HmeanIoU, Loader
from ocr.datasets import DBTransforms, OCRDataset
from ocr.pipeline.prefix import Letterbox
from ocr.system import free_memory, memory_bytes, total_memory
data = Path({data!r})
dataset = OCRDataset(data / "images/val", data / "jsons/val.json", DBTransforms([Letterbox(32)]), cache="auto",
                     cache_folder={cache!r})
for epoch in range(2):
    print(sum(len(batch["images"]) for batch in Loader(dataset, 4)))
print(dataset.ledger.totals()["cache_hits"], dataset.cache.stopped == "", 0 < memory_bytes() < total_memory())
assert "fcntl" not in sys.modules and "resource" not in sys.modules
"""
HELP = "from ocr.cli import main; sys.argv[1:] = ['--help']; main()"


def run_without(code: str) -> str:
    command = [sys.executable, "-W", "ignore", "-c", WITHOUT + code]
    done = subprocess.run(command, env=os.environ | {"PYTHONPATH": str(ROOT)}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


@pytest.mark.slow
def test_pages_are_loaded_and_kept(synthetic, tmp_path):
    assert run_without(PAGES.format(data=str(synthetic), cache=str(tmp_path / "cache"))) == "6\n6\n6 True True\n"


def test_the_command_helps():
    assert "train" in run_without(HELP)

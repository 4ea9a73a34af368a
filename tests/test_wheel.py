"""The wheel, installed outside the checkout, does everything that the README shows."""

import os
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from importlib.util import find_spec
from pathlib import Path

import pytest

from ocr.geometry.kernels.warm_up import ENTRIES, warm_up

# Found, not imported: setuptools replaces distutils, which must not happen in a process that has loaded it already.
pytestmark = pytest.mark.skipif(not (find_spec("pip") and find_spec("setuptools")), reason="no pip or setuptools here")

ROOT = Path(__file__).resolve().parent.parent
SMALL = [
    *("transforms.size=96", "model=lite", "model.channels=32", "model.head_channels=16", "trainer.accelerator=cpu"),
    *("dataloaders.train_dataloader.batch_size=2", "dataloaders.val_dataloader.batch_size=2"),
    *("dataloaders.test_dataloader.batch_size=2", "hydra.run.dir=run", "data.num_workers=1"),
]
TRAIN = [*SMALL, "trainer.max_epochs=1", "callbacks.drawings=null", "logger.tensorboard=null"]
CHECKPOINT = "checkpoint_path=run/checkpoints/last.ckpt"
NO_PATH = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}


def python(*arguments: object, cwd: Path) -> None:
    done = subprocess.run([sys.executable, *map(str, arguments)], capture_output=True, text=True, cwd=cwd)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    """Built from a copy, which leaves nothing in the checkout."""
    source = tmp_path_factory.mktemp("source")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    shutil.copytree(ROOT / "ocr", source / "ocr", ignore=shutil.ignore_patterns("__pycache__"))
    (source / "ocr/configs/data/tuned.yaml").write_text("# what `ocr advise apply=true` leaves in a checkout\n")
    python("-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "--quiet", "-w", source / "dist", ".", cwd=source)
    (built,) = (source / "dist").glob("*.whl")
    return built


@pytest.fixture(scope="module")
def ocr(wheel, tmp_path_factory):
    """Runs the installed command in a folder that is not a checkout.

    It is installed into an environment that has the libraries of this one, but not its `ocr`.
    """
    environment, folder = tmp_path_factory.mktemp("environment"), tmp_path_factory.mktemp("elsewhere")
    python("-m", "venv", "--without-pip", environment, cwd=environment)
    interpreter = environment / "bin" / "python"
    python("-m", "pip", f"--python={interpreter}", "install", "--no-deps", "--no-index", "-q", wheel, cwd=environment)
    packages = environment / "lib" / f"python{sysconfig.get_python_version()}" / "site-packages"
    # A path in a .pth file does not run the .pth files it holds: the editable checkout stays out.
    (packages / "libraries.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")

    def run(*arguments: str, program: str = "ocr") -> str:
        command = [environment / "bin" / program, *arguments]
        done = subprocess.run(command, capture_output=True, text=True, cwd=folder, env=NO_PATH)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    run.folder, run.packages = folder, packages
    return run


def test_the_wheel_has_every_config_the_detector_and_no_settings_of_a_checkout(wheel):
    names = set(zipfile.ZipFile(wheel).namelist())
    configs = {str(file.relative_to(ROOT)) for file in (ROOT / "ocr/configs").rglob("*.yaml")}
    assert configs - {"ocr/configs/data/tuned.yaml"} == {name for name in names if name.endswith(".yaml")}
    assert {"ocr/py.typed", "ocr/models/data/glyphfeed.safetensors"} <= names
    assert {str(file.relative_to(ROOT)) for file in (ROOT / "ocr/report").iterdir() if file.is_file()} <= names
    assert not [name for name in names if name.startswith(("tests/", "runners/", "configs"))]


def test_the_installed_command_is_not_the_checkout(ocr):
    assert ocr("--version").startswith("glyphfeed ")
    where = ocr("-c", "import ocr; print(ocr.__file__)", program="python").strip()
    assert Path(where).is_relative_to(ocr.packages)
    ocr("init", ".")
    assert (ocr.folder / "configs/experiment/mine.yaml").is_file()


@pytest.mark.slow
def test_everything_works_outside_the_checkout(ocr):
    # They are the same in a wheel; compiling them again would be most of this test.
    warm_up(show=False)
    kernels = ocr.packages / "ocr/geometry/kernels/__pycache__"
    kernels.mkdir(exist_ok=True)
    for file in Path(ENTRIES[0][0]._cache.cache_path).glob("*.kernel"):
        shutil.copy(file, kernels)
    if not (ocr.folder / "configs").exists():
        ocr("init", ".")
    ocr("synth", "data/demo", "--train", "4", "--val", "2", "--megapixels", "0.5", "0.6")
    ocr("doctor", "data/demo")
    given = [word for setting in SMALL if not setting.startswith("hydra.") for word in ("--set", setting)]
    assert "misses" in ocr("cache", "build", "data/demo", *given)
    assert "4 hits" in ocr("train", "experiment=mine", *TRAIN)
    assert "hmean" in ocr("test", CHECKPOINT, "hydra.run.dir=run")
    assert "2 pages" in ocr("predict", "run/checkpoints/last.ckpt", "data/demo/images/val", "--out", "found")
    assert (ocr.folder / "found/predictions.json").is_file()
    ocr("shards", "data/demo")
    ocr("train", "data=webdataset", *TRAIN)
    ocr("advise", *SMALL, "step_ms=50", "json=advice.json", "apply=true")
    ocr("report", "run")
    assert "<html" in (ocr.folder / "report.html").read_text()
    assert not list(ocr.packages.rglob("tuned.yaml"))

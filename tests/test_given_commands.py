"""Every command that users already have composes and runs as it is written."""

import os
import runpy
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SIZES = ["transforms.size=96", "dataset_base_path={data}"]
SMALL = [
    *SIZES,
    *("model=lite", "model.channels=32", "model.head_channels=16", "trainer.accelerator=cpu", "data.num_workers=1"),
    *("dataloaders.train_dataloader.batch_size=4", "dataloaders.val_dataloader.batch_size=4"),
    *("trainer.max_epochs=1", "trainer.limit_train_batches=1", "trainer.limit_val_batches=1"),
    *("callbacks.drawings=null", "logger.tensorboard=null", "hydra.run.dir={out}/run"),
]
# In this order: the second needs what the first writes.
COMMANDS = {
    "python scripts/preprocess_maps.py": SIZES,
    "python scripts/convert_to_webdataset.py": SIZES,
    "python scripts/profile_transforms.py": SIZES,
    "python scripts/benchmark_validation.py": SIZES,
    "python runners/train.py trainer.limit_val_batches=100 trainer.max_epochs=1": SMALL,
    "python runners/train.py data=webdataset": SMALL,
    "python runners/train.py use_dali=true": SMALL,
    "python runners/train.py datasets.val_dataset.preload_images=true": SMALL,
    "python runners/train.py data.preload_everything=true": SMALL,
    "python runners/train.py datasets.val_dataset.prenormalize_images=true": SMALL,
    "python runners/train.py dataloaders.train_dataloader.prefetch_factor=4": SMALL,
    "python runners/train.py dataloaders.train_dataloader.persistent_workers=true": SMALL,
}


@pytest.fixture(scope="module")
def data(synthetic, tmp_path_factory) -> Path:
    """Pages beside which maps and shards are written."""
    folder = tmp_path_factory.mktemp("given") / "data"
    for file in synthetic.rglob("*"):
        if file.is_file():
            target = folder / file.relative_to(synthetic)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.symlink_to(file)
    return folder


def words_of(command: str, data: Path, out: Path) -> list[str]:
    """The script and its arguments, with those that make it small."""
    given = [word.format(data=data, out=out) for word in COMMANDS[command]]
    return [*shlex.split(command)[1:], *given]


@pytest.mark.parametrize("command", COMMANDS)
def test_a_given_command_runs_as_written(command, data, tmp_path, monkeypatch, capfd):
    if "use_dali" in command:
        pytest.importorskip("nvidia.dali")
    if "data=webdataset" in command and not (data / "shards").exists():
        run_here("python scripts/convert_to_webdataset.py", data, tmp_path, monkeypatch)
    run_here(command, data, tmp_path, monkeypatch)
    if "runners" in command:
        assert (tmp_path / "run" / "checkpoints" / "last.ckpt").is_file(), capfd.readouterr()


def run_here(command: str, data: Path, out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In this process, which has loaded what takes seconds; from another folder than the checkout."""
    script, *arguments = words_of(command, data, out)
    monkeypatch.chdir(out)
    monkeypatch.setattr(sys, "argv", [str(ROOT / script), *arguments])
    monkeypatch.setattr(sys, "path", sys.path.copy())
    monkeypatch.setenv("HYDRA_FULL_ERROR", "1")
    status = None
    try:
        runpy.run_path(str(ROOT / script), run_name="__main__")
    except SystemExit as end:
        status = end.code
    assert not status, f"{command} ended with {status}"


@pytest.mark.slow
def test_a_given_command_is_a_program_of_its_own_in_the_checkout(data, tmp_path):
    command = "python runners/train.py datasets.val_dataset.preload_images=true"
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    line = [sys.executable, *words_of(command, data, tmp_path)]
    done = subprocess.run(line, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "best.ckpt" in "".join(done.stdout.split())

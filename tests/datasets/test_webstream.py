"""OCRWebStream: remote shards without an index give every sample once, to any ranks and workers, and when resumed."""

import time
import weakref
from pathlib import Path
from typing import Any

import lightning
import pytest
import torch
from hydra import compose, initialize_config_dir
from rejection import rejects
from rich.console import Console
from sameness import assert_same
from splits import DEVICE, FIXED, RANDOM, Files, batches, folder, names, serve, write_shards
from torch.utils.data import DataLoader

from ocr.datasets import DBCollateFN, DBTransforms, OCRWebDataset
from ocr.datasets.data_module import OCRDataModule
from ocr.datasets.webstream import OCRWebStream
from ocr.errors import ConfigError, DataError, ImageError
from ocr.evaluation.boxes import BoxesFromMap
from ocr.jobs.train import train
from ocr.loader import Loader
from ocr.loader.protocol import LoadableDataset
from ocr.loader.stream_order import StreamBatches
from ocr.models.detector import TextDetector
from ocr.models.loss import DBLoss
from ocr.pipeline.device import Normalize
from ocr.pipeline.prefix import Letterbox
from ocr.shards import storage
from ocr.shards.storage import Storage
from ocr.training.module import OCRPLModule

pytest.importorskip("fsspec")
pytest.importorskip("aiohttp")
CONFIGS = Path(__file__).resolve().parents[2] / "configs"


@pytest.fixture
def shards(synthetic, tmp_path, monkeypatch):
    """Shards of the training pages (8, two a shard) and of the validation pages (6, three a shard), without index."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setattr(storage, "FIRST_PAUSE_SECONDS", 0.01)
    write_shards(folder(synthetic, "train"), tmp_path / "out", "train", per_shard=2)
    write_shards(folder(synthetic, "val"), tmp_path / "out", "val")
    for split in ("train", "val"):
        (tmp_path / "out" / f"{split}-index.json").unlink()
    with serve(tmp_path / "out") as url:
        yield url


@pytest.fixture
def stream(shards, tmp_path):
    def open_stream(transform: Any = FIXED, pattern: str = "train-{000000..000003}.tar", **settings: Any) -> Any:
        return OCRWebDataset(f"{shards}/{pattern}", transform, **{"shard_folder": tmp_path / "kept"} | settings)

    return open_stream


@pytest.mark.parametrize(("transform", "workers"), [(FIXED, 1), (DEVICE, 3), (RANDOM, 0), (RANDOM, 3)])
def test_a_stream_gives_the_batches_of_the_folder(synthetic, stream, workers, transform):
    dataset = stream(transform)
    assert isinstance(dataset, OCRWebStream)
    assert_same(batches(dataset, 3, workers), batches(folder(synthetic, "train", transform), 3))
    assert dataset.ledger.totals()["seen"] == 8


def test_shuffled_epochs_differ_and_lose_nothing(stream):
    loader = Loader(stream(RANDOM, shuffle_buffer=3), 3, 2, shuffle=True, seed=5)
    first, second = names(loader), names(loader)
    assert first != second
    assert sorted(first) == sorted(second)
    assert len(set(first)) == 8
    again = Loader(stream(RANDOM, shuffle_buffer=3), 3, 0, shuffle=True, seed=5)
    assert names(again) == first


@pytest.mark.parametrize(
    ("ranks", "batch_size", "shuffle"), [(2, 1, True), (2, 3, False), (3, 2, True), (3, 3, False), (5, 1, False)]
)
def test_ranks_share_all_samples_and_have_as_many_batches(stream, ranks, batch_size, shuffle):
    settings = {"shuffle": shuffle, "world_size": ranks}
    datasets = [stream() for _ in range(ranks)]
    shares = [list(Loader(dataset, batch_size, 2, rank=rank, **settings)) for rank, dataset in enumerate(datasets)]
    assert len({len(share) for share in shares}) == 1
    assert sum(dataset.ledger.totals()["seen"] for dataset in datasets) == 8
    seen = [name for share in shares for name in names(share)]
    assert len(seen) == len(set(seen)) == 8


def test_drop_last_leaves_out_the_rest(stream):
    loader = Loader(stream(), 3, 2, drop_last=True)
    assert [len(batch["images"]) for batch in loader] == [3, 3]
    assert loader.dataset.ledger.totals()["seen"] == 6


@pytest.mark.parametrize("done", [0, 1, 2])
def test_a_resumed_epoch_continues_exactly(stream, done):
    expected = list(Loader(stream(RANDOM), 3, 2, shuffle=True))
    loader = Loader(stream(RANDOM), 3, 2, shuffle=True)
    passed = iter(loader)
    for _ in range(done):
        next(passed)
    state = loader.state_dict()
    passed.close()
    resumed = Loader(stream(RANDOM), 3, 1, shuffle=True)
    resumed.load_state_dict(state)
    assert_same(list(resumed), expected[done:])


def test_a_stream_that_is_resumed_after_its_last_batch_continues_with_the_next_epoch(stream):
    loader, resumed = (Loader(stream(RANDOM), 3, 2, shuffle=True) for _ in range(2))
    states = [loader.state_dict() for _ in loader]
    expected = list(loader)
    resumed.load_state_dict(states[-1])
    assert_same(list(resumed), expected)
    assert resumed.state_dict() == states[-1] | {"epoch": 2, "batches": 0}


@pytest.mark.parametrize(("workers", "shuffle"), [(0, True), (2, False), (2, True)])
def test_passes_at_once_over_one_stream_each_read_their_own_epoch(stream, workers, shuffle):
    loader = Loader(stream(RANDOM), 3, 0, shuffle=shuffle)
    expected = [list(loader), list(loader)]
    dataset = stream(RANDOM)
    first, second = (Loader(dataset, 3, workers, shuffle=shuffle) for _ in range(2))
    second.set_epoch(1)
    passed = list(zip(first, second, strict=True))
    assert_same([batch for batch, _ in passed], expected[0])
    assert_same([batch for _, batch in passed], expected[1])


def test_an_interrupted_pass_leaves_no_shard_open(stream):
    handles = stream().handles(0, 0, shuffle=False)
    handle = next(handles)
    part = weakref.ref(handle.part)
    handles.close()
    assert part() is not None
    del handle
    assert part() is None


def test_torchs_own_loader_shares_a_stream_among_its_workers(stream):
    dataset = stream()
    for workers in (0, 2):
        seen = names(DataLoader(dataset, 2, num_workers=workers, collate_fn=DBCollateFN()))
        assert sorted(seen) == sorted(item["image_filename"] for item in dataset)
    assert len(seen) == 8


def test_shards_are_fetched_once_and_ahead(stream):
    loader = Loader(stream(), 2, 1, batches_ahead=1)
    Files.asked.clear()
    passed = iter(loader)
    next(passed)
    deadline = time.monotonic() + 600
    while len(Files.asked) < 3 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert sorted(Files.asked)[:3] == [f"train-00000{number}.tar" for number in range(3)]
    assert len(names(passed)) == 6
    assert len(names(loader)) == 8
    assert sorted(Files.asked) == [f"train-00000{number}.tar" for number in range(4)]


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("missing", [False, True])
def test_a_missing_or_damaged_shard_is_named_or_skipped_and_counted(stream, shards, tmp_path, workers, missing):
    file = tmp_path / "out" / "train-000001.tar"
    data = file.read_bytes()
    if missing:
        file.unlink()
    else:
        file.write_bytes(data[: len(data) // 2])
    with rejects(DataError, value=None if missing else 0, path=f"{shards}/train-000001.tar"):
        list(Loader(stream(tries=1), 2, workers))
    dataset = stream(tries=1, on_bad_sample="skip")
    assert len(names(Loader(dataset, 2, workers))) == 6
    assert dataset.ledger.totals()["skipped"] == 1
    assert dataset.ledger.files("skipped") == [f"{shards}/train-000001.tar"]


def test_a_bad_page_is_named_or_skipped_and_counted(stream, shards, tmp_path):
    file = tmp_path / "out" / "val-000000.tar"
    data = bytearray(file.read_bytes())
    data[512:1024] = bytes(512)
    file.write_bytes(data)
    with rejects(ImageError, value=bytes(8), path=f"{shards}/val-000000.tar/00000000.jpg"):
        list(Loader(stream(pattern="val-{000000..000001}.tar"), 6))
    dataset = stream(pattern="val-{000000..000001}.tar", on_bad_sample="skip")
    assert len(names(Loader(dataset, 6))) == 5
    assert dataset.ledger.totals()["skipped"] == 1


def test_a_loader_of_a_stream_can_be_printed(stream):
    shown = repr(Loader(stream(), 2, 1))
    assert shown.startswith("Loader(unknown number of batches, batch_size=2")
    assert "OCRWebStream(4 shards from" in shown


def test_what_a_stream_cannot_do_is_refused(stream):
    with rejects(ConfigError, setting="data.engine", value="processes"):
        Loader(stream(), 2, 2, engine="processes")
    with pytest.raises(TypeError):
        len(Loader(stream(), 2))
    with rejects(ConfigError, setting="shards.shuffle_buffer", value=0):
        stream(shuffle_buffer=0)
    with rejects(ConfigError, setting="batch_size", value=9):
        list(Loader(stream(), 9, 2, drop_last=True))


@pytest.mark.parametrize(("batch_size", "ranks"), [(1, 1), (1, 3), (2, 3), (4, 2), (3, 1)])
@pytest.mark.parametrize("drop_last", [False, True])
def test_the_batches_of_any_count_are_shared_out(batch_size, ranks, drop_last):
    for count in range(14):
        check_shares(count, batch_size, ranks, drop_last)


def check_shares(count: int, batch_size: int, ranks: int, drop_last: bool) -> None:
    def shares() -> list[list[list[int]]]:
        handles = lambda seed, epoch, shuffle: iter(range(count))  # noqa: E731
        settings = {"shuffle": False, "drop_last": drop_last, "world_size": ranks}
        return [list(StreamBatches(handles, batch_size, rank=rank, **settings)) for rank in range(ranks)]

    if count < (batch_size * ranks if drop_last else ranks):
        named = ("batch_size", batch_size) if drop_last else ("world_size", ranks)
        setting, value = named if count else ("dataset", 0)
        with rejects(ConfigError, setting=setting, value=value):
            shares()
        return
    found = shares()
    assert len({len(share) for share in found}) == 1
    seen = sorted(handle for share in found for batch in share for handle in batch)
    most = count // (batch_size * ranks) * batch_size * ranks
    assert seen == list(range(most if drop_last else count))
    sizes = {len(batch) for share in found for batch in share}
    assert max(sizes) <= batch_size + 1
    assert min(sizes) >= 1


def test_a_training_needs_a_setting_for_how_long_an_epoch_of_a_stream_is(shards, tmp_path):
    out = f"output_dir={tmp_path / 'run'}"
    place = [
        f"datasets.{split}_dataset.tar_path='{shards}/{split}-{{000000..000001}}.tar'" for split in ("train", "val")
    ]
    overrides = ["data=webdataset", *place, f"shards.folder={tmp_path / 'kept'}", "model=lite", "model.channels=32"]
    overrides += ["transforms.size=64", "trainer.max_epochs=1", "trainer.accelerator=cpu", "logger.tensorboard=null"]
    overrides += ["dataloaders.train_dataloader.batch_size=2", "callbacks.progress=null", out]
    with initialize_config_dir(str(CONFIGS), version_base="1.3"):
        endless = compose("train", overrides)
        limited = compose("train", [*overrides, "trainer.limit_train_batches=2"])
    with rejects(ConfigError, setting="trainer.max_steps", value=-1):
        train(endless, Console(quiet=True))
    assert "val/hmean" in train(limited, Console(quiet=True))


SMALL = DBTransforms([Letterbox(32), Normalize()], normalize="device")


class Pages(lightning.Callback):
    """The epoch and the pages of every batch that was trained, and checkpoints at every occasion."""

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder
        self.trained: list[tuple[Any, ...]] = []

    def on_before_optimizer_step(self, trainer: Any, module: Any, optimizer: Any) -> None:
        self._save(trainer, "within")

    def on_train_batch_end(self, trainer: Any, module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        self.trained.append((trainer.current_epoch, *batch["image_filename"]))
        self._save(trainer, "after")

    def on_train_epoch_end(self, trainer: Any, module: Any) -> None:
        self._save(trainer, "epoch")

    def on_validation_end(self, trainer: Any, module: Any) -> None:
        self._save(trainer, "validated")

    def _save(self, trainer: Any, when: str) -> None:
        if self.folder is not None:
            trainer.save_checkpoint(self.folder / f"{when}{len(self.trained)}.ckpt")


def fit(
    train: LoadableDataset, val: LoadableDataset, pages: Pages, resume: Path | None = None, **limits: Any
) -> list[tuple[Any, ...]]:
    lightning.seed_everything(0, verbose=False)
    nothing_else = ("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary")
    trainer = lightning.Trainer(
        accelerator="cpu",
        callbacks=[pages],
        limit_val_batches=1,
        num_sanity_val_steps=0,
        use_distributed_sampler=False,
        **dict.fromkeys(nothing_else, False),
        **limits,
    )
    model = TextDetector("mobilenetv3_small_050", channels=8)
    module = OCRPLModule(model, DBLoss(), BoxesFromMap(), lambda weights: torch.optim.SGD(weights, 1e-4))
    data = OCRDataModule(train=train, val=val, batch_size=3, num_workers=1)
    trainer.fit(module, datamodule=data, ckpt_path=resume, weights_only=True)
    return pages.trained


@pytest.mark.parametrize(
    ("kind", "limits"),
    [
        ("stream", {"max_steps": 7}),
        pytest.param("stream", {"max_epochs": 3, "limit_train_batches": 2}, marks=pytest.mark.slow),
        pytest.param("folder", {"max_steps": 7, "max_epochs": 4}, marks=pytest.mark.slow),
        ("folder", {"max_epochs": 3}),
    ],
)
def test_a_resumed_training_loses_and_repeats_no_batch(synthetic, tmp_path, kind, limits):
    val, train = folder(synthetic, "val", SMALL), folder(synthetic, "train", SMALL)
    if kind == "stream":
        out = write_shards(folder(synthetic, "train"), tmp_path / "shards", "train", per_shard=2)
        urls = [str(path) for path in sorted(out.glob("*.tar"))]
        train = OCRWebStream(urls, Storage(out / "kept"), SMALL, shuffle_buffer=3)
    saved = tmp_path / "saved"
    trained = fit(train, val, Pages(saved), **limits)
    steps = limits.get("limit_train_batches", 3)
    assert [epoch for epoch, *_ in trained] == [step // steps for step in range(len(trained))]
    assert len(trained) >= 2 * steps
    for path in sorted(saved.iterdir()):
        done = int(path.stem.lstrip("abcdefghijklmnopqrstuvwxyz"))
        if 0 < done <= steps + 1:
            assert (path.stem, fit(train, val, Pages(), path, **limits)) == (path.stem, trained[done:])

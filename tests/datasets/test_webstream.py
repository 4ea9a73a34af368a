"""OCRWebStream: remote shards without an index give every sample once, on any number of ranks and workers."""

import contextlib
import functools
import http.server
import threading
import time
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest
from hydra import compose, initialize_config_dir
from rich.console import Console
from sameness import assert_same
from test_webdataset import DEVICE, FIXED, RANDOM, folder, without_paths, write_shards
from torch.utils.data import DataLoader

from ocr.datasets import DBCollateFN, OCRWebDataset
from ocr.datasets.webstream import OCRWebStream
from ocr.errors import ConfigError, DataError
from ocr.jobs.train import train
from ocr.loader import Loader
from ocr.loader.stream_order import StreamBatches
from ocr.shards import storage

pytest.importorskip("fsspec")
pytest.importorskip("aiohttp")
CONFIGS = Path(__file__).resolve().parents[2] / "configs"


class Files(http.server.SimpleHTTPRequestHandler):
    """Serves a folder, and notes what is asked for."""

    asked: ClassVar[list[str]] = []

    def do_GET(self) -> None:
        self.asked.append(self.path.rpartition("/")[2])
        super().do_GET()

    def log_message(self, *_: Any) -> None:
        pass


@contextlib.contextmanager
def serve(place: Path, files: type[Files] = Files) -> Iterator[str]:
    handler = functools.partial(files, directory=str(place))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


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


def names(batches: Any) -> list[str]:
    return [name for batch in batches for name in batch["image_filename"]]


@pytest.mark.parametrize("workers", [0, 1, 3])
@pytest.mark.parametrize("transform", [FIXED, DEVICE, RANDOM])
def test_a_stream_gives_the_batches_of_the_folder(synthetic, stream, workers, transform):
    dataset = stream(transform)
    assert isinstance(dataset, OCRWebStream)
    expected = list(Loader(folder(synthetic, "train", transform), 3, 0))
    assert_same(without_paths(list(Loader(dataset, 3, workers))), without_paths(expected))
    assert dataset.ledger.totals()["seen"] == 8


def test_shuffled_epochs_differ_and_lose_nothing(stream):
    loader = Loader(stream(RANDOM, shuffle_buffer=3), 3, 2, shuffle=True, seed=5)
    first, second = names(loader), names(loader)
    assert first != second
    assert sorted(first) == sorted(second)
    assert len(set(first)) == 8
    again = Loader(stream(RANDOM, shuffle_buffer=3), 3, 0, shuffle=True, seed=5)
    assert names(again) == first


@pytest.mark.parametrize("ranks", [2, 3, 5])
@pytest.mark.parametrize("batch_size", [1, 2, 3])
@pytest.mark.parametrize("shuffle", [False, True])
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
def test_a_resumed_epoch_goes_on_exactly(stream, done):
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


def test_a_stream_that_is_resumed_after_its_last_batch_goes_on_with_the_next_epoch(stream):
    loader, resumed = (Loader(stream(RANDOM), 3, 2, shuffle=True) for _ in range(2))
    states = [loader.state_dict() for _ in loader]
    expected = list(loader)
    resumed.load_state_dict(states[-1])
    assert_same(list(resumed), expected)
    assert resumed.state_dict() == states[-1] | {"epoch": 2, "batches": 0}


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("shuffle", [False, True])
def test_passes_at_once_over_one_stream_each_read_their_own_epoch(stream, workers, shuffle):
    loader = Loader(stream(RANDOM), 3, 0, shuffle=shuffle)
    expected = [list(loader), list(loader)]
    dataset = stream(RANDOM)
    first, second = (Loader(dataset, 3, workers, shuffle=shuffle) for _ in range(2))
    second.set_epoch(1)
    passed = list(zip(first, second, strict=True))
    assert_same([batch for batch, _ in passed], expected[0])
    assert_same([batch for _, batch in passed], expected[1])


def test_a_pass_that_is_broken_off_leaves_no_shard_open(stream):
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
        batches = list(DataLoader(dataset, 2, num_workers=workers, collate_fn=DBCollateFN()))
        assert sorted(names(batches)) == sorted(item["image_filename"] for item in dataset)
    assert len(names(batches)) == 8


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


def test_a_missing_or_damaged_shard_is_named_or_skipped_and_counted(stream, tmp_path):
    file = tmp_path / "out" / "train-000001.tar"
    data = file.read_bytes()
    for damage, complaint in ((data[: len(data) // 2], "damaged after offset"), (None, "train-000001.tar: not found")):
        file.unlink()
        if damage is not None:
            file.write_bytes(damage)
        for workers in (0, 2):
            with pytest.raises(DataError, match=complaint):
                list(Loader(stream(shard_folder=tmp_path / f"kept-{complaint}", tries=1), 2, workers))
        dataset = stream(shard_folder=tmp_path / f"kept-{complaint}", tries=1, on_bad_sample="skip")
        assert len(names(Loader(dataset, 2, 2))) == 6
        assert dataset.ledger.totals()["skipped"] == 1
        assert [name.rpartition("/")[2] for name in dataset.ledger.files("skipped")] == ["train-000001.tar"]


def test_a_bad_page_is_skipped_and_counted(synthetic, stream, tmp_path):
    file = tmp_path / "out" / "val-000000.tar"
    data = bytearray(file.read_bytes())
    data[512:1024] = bytes(512)
    file.write_bytes(data)
    with pytest.raises(DataError):
        list(Loader(stream(pattern="val-{000000..000001}.tar"), 6))
    dataset = stream(pattern="val-{000000..000001}.tar", on_bad_sample="skip")
    assert len(names(Loader(dataset, 6))) == 5
    assert dataset.ledger.totals()["skipped"] == 1


def test_a_loader_of_a_stream_can_be_printed(stream):
    shown = repr(Loader(stream(), 2, 1))
    assert shown.startswith("Loader(unknown number of batches, batch_size=2")
    assert "OCRWebStream(4 shards from" in shown


def test_what_a_stream_cannot_do_is_refused(stream):
    with pytest.raises(ConfigError, match="engine=processes: shards without an index"):
        Loader(stream(), 2, 2, engine="processes")
    with pytest.raises(TypeError):
        len(Loader(stream(), 2))
    with pytest.raises(ConfigError, match="shuffle_buffer=0"):
        stream(shuffle_buffer=0)
    with pytest.raises(ConfigError, match=r"8 pages do not fill a batch of 9 .*drop_last=false"):
        list(Loader(stream(), 9, 2, drop_last=True))


@pytest.mark.parametrize("count", range(14))
@pytest.mark.parametrize(("batch_size", "ranks"), [(1, 1), (1, 3), (2, 3), (4, 2), (3, 1)])
@pytest.mark.parametrize("drop_last", [False, True])
def test_the_batches_of_any_count_are_shared_out(count, batch_size, ranks, drop_last):
    def shares() -> list[list[list[int]]]:
        handles = lambda seed, epoch, shuffle: iter(range(count))  # noqa: E731
        settings = {"shuffle": False, "drop_last": drop_last, "world_size": ranks}
        return [list(StreamBatches(handles, batch_size, rank=rank, **settings)) for rank in range(ranks)]

    if count < (batch_size * ranks if drop_last else ranks):
        with pytest.raises(ConfigError, match=f"{count} pages do not fill" if count else "no pages or items"):
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


def test_a_training_needs_to_be_told_how_long_an_epoch_of_a_stream_is(shards, tmp_path):
    out = f"output_dir={tmp_path / 'run'}"
    place = [
        f"datasets.{split}_dataset.tar_path='{shards}/{split}-{{000000..000001}}.tar'" for split in ("train", "val")
    ]
    overrides = ["data=webdataset", *place, f"shards.folder={tmp_path / 'kept'}", "model=lite", "model.channels=32"]
    overrides += ["transforms.size=64", "trainer.max_epochs=1", "trainer.accelerator=cpu", "logger.tensorboard=null"]
    overrides += ["dataloaders.train_dataloader.batch_size=2", "callbacks.progress=null", out]
    with initialize_config_dir(str(CONFIGS), version_base="1.3"):
        endless = compose("train", overrides)
        told = compose("train", [*overrides, "trainer.limit_train_batches=2"])
    with pytest.raises(ConfigError, match=r"trainer\.limit_train_batches=N"):
        train(endless, Console(quiet=True))
    assert "val/hmean" in train(told, Console(quiet=True))

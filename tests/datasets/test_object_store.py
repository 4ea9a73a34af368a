"""Shards in an object store: a real S3 server on loopback, trained from, cut off and damaged."""

import hashlib
import os
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from hydra import compose, initialize_config_dir
from object_store import Line, s3_server
from rejection import rejects
from rich.console import Console
from sameness import assert_same
from splits import DEVICE, FIXED, RANDOM, batches, folder, without_paths, write_shards

from ocr.datasets import OCRWebDataset
from ocr.errors import DataError, MissingExtraError
from ocr.jobs.train import train
from ocr.loader import Loader
from ocr.shards import storage

boto3 = pytest.importorskip("boto3")
pytest.importorskip("s3fs")
pytest.importorskip("moto.server")
CONFIGS = Path(__file__).resolve().parents[2] / "configs"
BUCKET = "pages"


@pytest.fixture(scope="module")
def server() -> Any:
    with s3_server() as port:
        yield port


@pytest.fixture
def line(server, monkeypatch) -> Any:
    between = Line(server)
    for name, value in (
        ("AWS_ENDPOINT_URL", f"http://127.0.0.1:{between.port}"),
        ("AWS_ACCESS_KEY_ID", "a"),
        ("AWS_SECRET_ACCESS_KEY", "b"),
        ("AWS_DEFAULT_REGION", "us-east-1"),
        ("NO_PROXY", "127.0.0.1"),
    ):
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(storage, "FIRST_PAUSE_SECONDS", 0.01)
    # A file system of its own for each test: fsspec keeps them by their arguments, and with them the endpoint.
    import s3fs

    s3fs.S3FileSystem.clear_instance_cache()
    yield between
    between.close()


def upload(server: int, shards: Path, prefix: str) -> str:
    client = boto3.client(
        "s3",
        endpoint_url=f"http://127.0.0.1:{server}",
        region_name="us-east-1",
        aws_access_key_id="a",
        aws_secret_access_key="b",
    )
    if BUCKET not in [bucket["Name"] for bucket in client.list_buckets()["Buckets"]]:
        client.create_bucket(Bucket=BUCKET)
    for file in sorted(shards.iterdir()):
        client.put_object(Bucket=BUCKET, Key=f"{prefix}/{file.name}", Body=file.read_bytes())
    return f"s3://{BUCKET}/{prefix}"


@pytest.mark.parametrize("pattern", [pytest.param("val-{000000..000001}.tar", marks=pytest.mark.slow), "val-*.tar"])
def test_two_epochs_from_s3_are_those_of_the_folder(synthetic, tmp_path, server, line, pattern):
    url = upload(server, write_shards(folder(synthetic, "val"), tmp_path / "shards", "val"), "epochs")
    dataset = OCRWebDataset(f"{url}/{pattern}", FIXED, cache="auto", cache_folder=tmp_path / "cache")
    expected = batches(folder(synthetic, "val"))
    for _ in range(2):
        assert_same(batches(dataset, 4, 2), expected)


@pytest.mark.slow
def test_a_line_that_is_cut_again_and_again_loses_nothing(synthetic, tmp_path, server, line):
    url = upload(server, write_shards(folder(synthetic, "train"), tmp_path / "shards", "train"), "cut")
    expected = batches(folder(synthetic, "train", RANDOM), 3)
    for after in (100, 5_000, 100_000, 300_000):
        dataset = OCRWebDataset(f"{url}/train-*.tar", RANDOM, shard_folder=tmp_path / f"shards-{after}")
        line.cut(after)
        assert_same(batches(dataset, 3, 2), expected)
    assert line.cuts >= 3


@pytest.mark.slow
def test_worker_processes_read_what_the_main_process_fetches_ahead(synthetic, tmp_path, server, line):
    url = upload(server, write_shards(folder(synthetic, "train"), tmp_path / "shards", "train"), "processes")
    expected = batches(folder(synthetic, "train", RANDOM), 3)
    dataset = OCRWebDataset(f"{url}/train-*.tar", RANDOM, shard_folder=tmp_path / "kept")
    loader = Loader(dataset, 3, 2, "processes")
    for _ in range(2):
        assert_same(without_paths(loader), expected)
        loader.set_epoch(0)


@pytest.mark.slow
def test_fetched_shards_stay_within_their_budget(synthetic, tmp_path, server, line):
    shards = write_shards(folder(synthetic, "train"), tmp_path / "shards", "train", per_shard=2)
    url, largest = upload(server, shards, "budget"), max(file.stat().st_size for file in shards.glob("*.tar"))
    kept = tmp_path / "kept"
    dataset = OCRWebDataset(f"{url}/train-*.tar", RANDOM, shard_folder=kept, shard_max_bytes=2 * largest)
    for _ in range(2):
        assert sum(len(batch["images"]) for batch in Loader(dataset, 3, 2)) == 8

    def settled() -> bool:
        names = os.listdir(kept)
        used = sum((kept / name).stat().st_size for name in names if (kept / name).exists())
        return used <= 2 * largest and not any(name.startswith(".") for name in names)

    deadline = time.monotonic() + 60
    while not settled() and time.monotonic() < deadline:  # A fetch that has started still finishes.
        time.sleep(0.01)
    assert settled()


@pytest.mark.slow
def test_an_object_without_index_that_changed_is_fetched_again_when_it_is_opened(synthetic, tmp_path, server, line):
    shards = tmp_path / "shards"
    for split in ("val", "train"):
        write_shards(folder(synthetic, split), shards, "val")
        (shards / "val-index.json").unlink()
        url = upload(server, shards, "changed")
        dataset = OCRWebDataset(f"{url}/val-{{000000..000001}}.tar", DEVICE, shard_folder=tmp_path / "kept")
        found, expected = list(Loader(dataset, 3)), list(Loader(folder(synthetic, split, DEVICE), 3))
        assert_same([batch["images"] for batch in found], [batch["images"] for batch in expected[:2]])


@pytest.mark.slow
def test_a_damaged_or_missing_object_is_named_or_its_samples_skipped(synthetic, tmp_path, server, line):
    shards = write_shards(folder(synthetic, "val"), tmp_path / "shards", "val")
    data = bytearray((shards / "val-000001.tar").read_bytes())
    data[len(data) // 2] ^= 1
    (shards / "val-000001.tar").write_bytes(data)
    url = upload(server, shards, "damaged")
    place = f"{url}/val-{{000000..000001}}.tar"
    with rejects(DataError, value=hashlib.sha256(data).hexdigest(), path=f"{url}/val-000001.tar"):
        list(Loader(OCRWebDataset(place, DEVICE, shard_folder=tmp_path / "kept", tries=2), 6))
    dataset = OCRWebDataset(place, DEVICE, shard_folder=tmp_path / "kept", tries=1, on_bad_sample="skip")
    (batch,) = Loader(dataset, 6)
    assert len(batch["images"]) == 3
    assert dataset.ledger.totals()["skipped"] == 3


@pytest.mark.slow
def test_a_run_trains_two_epochs_from_s3(synthetic, tmp_path, server, line, capsys):
    for split in ("train", "val"):
        write_shards(folder(synthetic, split), tmp_path / "shards", split)
    url = upload(server, tmp_path / "shards", "training")
    line.cut(200_000)
    overrides = ["data=webdataset", f"shards_base_path={url}", f"output_dir={tmp_path / 'run'}"]
    overrides += ["model=lite", "model.channels=32", "transforms.size=64", "trainer.max_epochs=2", "trainer.devices=1"]
    overrides += ["dataloaders.train_dataloader.batch_size=2", "trainer.accelerator=cpu", "logger.tensorboard=null"]
    with initialize_config_dir(str(CONFIGS), version_base="1.3"):
        config = compose("train", [*overrides, f"cache.folder={tmp_path / 'cache'}"])
    assert "val/hmean" in train(config, Console(quiet=True))
    assert "train: 8 pages; cache 8 hits, 0 misses" in capsys.readouterr().out
    assert line.cuts == 1


def test_without_fsspec_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "fsspec", None)
    with rejects(MissingExtraError, setting="s3", value="fsspec"):
        OCRWebDataset("s3://nowhere/val-{000000..000001}.tar", FIXED)

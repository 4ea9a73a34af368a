"""Two nodes on loopback, with gloo: every page once, from folder, shards and cache; a training by torchrun."""

import csv
import json
import multiprocessing
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from ports import free_port
from splits import DEVICE, RANDOM, folder, serve, write_shards

from ocr.datasets import OCRWebDataset
from ocr.loader import Loader
from ocr.pipeline.page_index import content_digest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def shards(synthetic, tmp_path) -> Path:
    for split in ("train", "val"):
        write_shards(folder(synthetic, split), tmp_path / "shards", split)
    return tmp_path / "shards"


def digests(batch: dict[str, Any]) -> list[tuple[str, str]]:
    """Name and content of each sample."""
    parts = zip(batch["image_filename"], batch["images"], batch["prob_maps"], batch["thresh_maps"], strict=True)
    return [
        (name, content_digest(b"".join(tensor.contiguous().numpy().tobytes() for tensor in tensors)).hex())
        for name, *tensors in parts
    ]


def read(loader: Loader) -> list[list[list[tuple[str, str]]]]:
    """Two epochs, batch by batch; every batch ends with a sum over all ranks, which hangs where one has fewer."""
    epochs = []
    for _ in range(2):
        batches = []
        for batch in loader:
            batches.append(digests(batch))
            if torch.distributed.is_initialized():
                torch.distributed.all_reduce(torch.ones(1))
        epochs.append(batches)
    return epochs


def loaders(data: Path, shards: Path, url: str, own: Path) -> dict[str, Loader]:
    """Training pages shuffled and augmented, and validation pages, of everything that pages can be read from."""
    kept = {"cache": "auto", "cache_folder": own / "cache"}
    train = {"shuffle": True, "drop_last": False, "seed": 3}
    fetched = {"shard_folder": own / "shards", "shuffle_buffer": 3}
    return {
        "folder": Loader(folder(data, "train", RANDOM), 2, **train),
        "cache": Loader(folder(data, "train", RANDOM, **kept), 2, **train),
        "shards": Loader(OCRWebDataset(str(shards / "train-*.tar"), RANDOM), 2, **train),
        "cached shards": Loader(OCRWebDataset(str(shards / "train-*.tar"), RANDOM, **kept), 2, **train),
        "remote shards": Loader(OCRWebDataset(f"{url}/train-{{000000..000002}}.tar", RANDOM, **fetched), 2, **train),
        "val folder": Loader(folder(data, "val", DEVICE), 4),
        "val cache": Loader(folder(data, "val", DEVICE, **kept), 4),
        "val shards": Loader(OCRWebDataset(str(shards / "val-*.tar"), DEVICE), 4),
    }


def read_as_rank(rank: int, out: Path, data: Path, shards: Path, url: str) -> None:
    """One of two nodes of one process each: what it read, in a file."""
    torch.set_num_threads(1)
    own = {"RANK": rank, "GROUP_RANK": rank, "LOCAL_RANK": 0, "WORLD_SIZE": 2, "GROUP_WORLD_SIZE": 2}
    os.environ |= {name: str(value) for name, value in (own | {"LOCAL_WORLD_SIZE": 1}).items()}
    torch.distributed.init_process_group("gloo", init_method=f"file://{out / 'meet'}", rank=rank, world_size=2)
    seen = {name: read(loader) for name, loader in loaders(data, shards, url, out / f"node-{rank}").items()}
    (out / f"rank-{rank}.json").write_text(json.dumps(seen))
    torch.distributed.destroy_process_group()


def flat(epoch: list[Any]) -> list[tuple[str, str]]:
    return sorted(tuple(sample) for batch in epoch for sample in batch)


def test_two_nodes_read_every_page_once_and_as_one_node_does(synthetic, shards, tmp_path, monkeypatch):
    pytest.importorskip("aiohttp")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    plain = tmp_path / "plain"
    plain.mkdir()
    for file in shards.glob("train-*.tar"):
        (plain / file.name).symlink_to(file)
    with serve(plain) as url:
        places = (synthetic, shards, url)
        # Forked: what torchrun starts would import torch for seconds.
        forks = multiprocessing.get_context("fork")
        ranks = [forks.Process(target=read_as_rank, args=(rank, tmp_path, *places)) for rank in range(2)]
        for rank in ranks:
            rank.start()
        for rank in ranks:
            rank.join(300)
            rank.kill()
        assert [rank.exitcode for rank in ranks] == [0, 0]
        alone = {name: read(loader) for name, loader in loaders(*places, tmp_path / "alone").items()}
    seen = [json.loads((tmp_path / f"rank-{rank}.json").read_text()) for rank in range(2)]
    for name, epochs in alone.items():
        same = "folder" if not name.startswith("val") else "val folder"
        for epoch in range(2):
            shares = [rank[name][epoch] for rank in seen]
            assert len(shares[0]) == len(shares[1]), name
            assert flat([*shares[0], *shares[1]]) == flat(epochs[epoch]) == flat(alone[same][epoch]), name
            assert all(min(map(len, share)) >= 1 for share in shares)
    assert alone["folder"][0] != alone["folder"][1]


@pytest.mark.slow
def test_a_training_runs_on_two_nodes_with_shards_and_a_cache_each(shards, tmp_path):
    """The documented command, once for each node."""
    command = [sys.executable, "-m", "torch.distributed.run", "--nnodes=2", "--nproc-per-node=1"]
    command += ["--rdzv-backend=c10d", f"--rdzv-endpoint=127.0.0.1:{free_port()}", str(ROOT / "runners" / "train.py")]
    command += ["data=webdataset", f"shards_base_path={shards}", "model=lite", "model.channels=32"]
    command += ["transforms.size=64", "trainer.max_epochs=2", "trainer.accelerator=cpu", "logger.tensorboard=null"]
    command += ["trainer.num_nodes=2", "trainer.devices=1", "trainer.strategy=ddp", "callbacks.progress=null"]
    command += ["dataloaders.train_dataloader.batch_size=2", "+trainer.enable_progress_bar=false"]
    command += [f"output_dir={tmp_path / 'run'}", f"hydra.run.dir={tmp_path / 'run'}"]
    shared = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "NO_PROXY": "127.0.0.1"}
    nodes = [
        subprocess.Popen(
            command,
            env=shared | {"GLYPHFEED_CACHE": str(tmp_path / f"cache-{node}")},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for node in range(2)
    ]
    said = [node.communicate(timeout=900)[0] for node in nodes]
    assert [node.returncode for node in nodes] == [0, 0], "\n".join(said)
    # Two epochs of eight pages: each node makes and keeps those that it reads.
    assert sum("train: 8 pages; cache" in line for text in said for line in text.splitlines()) == 2, said
    assert all(any((tmp_path / f"cache-{node}").iterdir()) for node in range(2))
    rows = list(csv.DictReader((tmp_path / "run" / "csv" / "version_0" / "metrics.csv").open()))
    assert len([row for row in rows if row.get("val/hmean")]) == 2

"""Two nodes on loopback, with gloo: every page once, from folder, shards, stream and cache; a training by torchrun."""

import csv
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from ports import free_port
from rank_reader import loaders, read
from test_webdataset import folder, write_shards
from test_webstream import serve

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent


def torchrun(*arguments: str, environments: list[dict[str, str]]) -> list[str]:
    """The documented command on two nodes of one rank each; what they said."""
    command = [sys.executable, "-m", "torch.distributed.run", "--nnodes=2", "--nproc-per-node=1"]
    command += ["--rdzv-backend=c10d", f"--rdzv-endpoint=127.0.0.1:{free_port()}", *arguments]
    return run_nodes(command, environments)


def run_nodes(command: list[str], environments: list[dict[str, str]]) -> list[str]:
    """The same command, once in each environment; what they said."""
    paths = os.pathsep.join([str(ROOT), str(HERE), str(HERE.parent), *filter(None, [os.environ.get("PYTHONPATH")])])
    shared = os.environ | {"PYTHONPATH": paths, "OMP_NUM_THREADS": "1", "NO_PROXY": "127.0.0.1"}
    nodes = [
        subprocess.Popen(command, env=shared | own, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        for own in environments
    ]
    said = [node.communicate(timeout=900)[0] for node in nodes]
    assert [node.returncode for node in nodes] == [0, 0], "\n".join(said)
    return said


@pytest.fixture
def shards(synthetic, tmp_path) -> Path:
    for split in ("train", "val"):
        write_shards(folder(synthetic, split), tmp_path / "shards", split)
    return tmp_path / "shards"


def flat(epoch: list[Any]) -> list[tuple[str, str]]:
    return sorted(tuple(sample) for batch in epoch for sample in batch)


def test_two_nodes_read_every_page_once_and_as_one_node_does(synthetic, shards, tmp_path):
    pytest.importorskip("aiohttp")
    plain = tmp_path / "plain"
    plain.mkdir()
    for file in shards.glob("train-*.tar"):
        (plain / file.name).symlink_to(file)
    with serve(plain) as url:
        arguments = [str(synthetic), str(shards), url, str(tmp_path)]
        # As torchrun sets them, without its two processes, which import torch only to start the others.
        sizes = {"WORLD_SIZE": "2", "GROUP_WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "1", "LOCAL_RANK": "0"}
        rendezvous = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
        nodes = [sizes | rendezvous | {"RANK": rank, "GROUP_RANK": rank} for rank in ("0", "1")]
        run_nodes([sys.executable, str(HERE / "rank_reader.py"), *arguments], nodes)
        alone = {name: read(loader) for name, loader in loaders(synthetic, shards, url, tmp_path / "alone").items()}
    ranks = [json.loads((tmp_path / f"rank-{rank}.json").read_text()) for rank in range(2)]
    for name, epochs in alone.items():
        same = "folder" if not name.startswith("val") else "val folder"
        for epoch in range(2):
            shares = [rank[name][epoch] for rank in ranks]
            assert len(shares[0]) == len(shares[1]), name
            assert flat([*shares[0], *shares[1]]) == flat(epochs[epoch]) == flat(alone[same][epoch]), name
            assert all(min(map(len, share)) >= 1 for share in shares)
    assert alone["folder"][0] != alone["folder"][1]


def test_a_training_runs_on_two_nodes_with_shards_and_a_cache_each(shards, tmp_path):
    environments = [{"GLYPHFEED_CACHE": str(tmp_path / f"cache-{node}")} for node in range(2)]
    overrides = ["data=webdataset", f"shards_base_path={shards}", "model=lite", "model.channels=32"]
    overrides += ["transforms.size=64", "trainer.max_epochs=2", "trainer.accelerator=cpu", "logger.tensorboard=null"]
    overrides += ["trainer.num_nodes=2", "trainer.devices=1", "trainer.strategy=ddp", "callbacks.progress=null"]
    overrides += ["dataloaders.train_dataloader.batch_size=2", "+trainer.enable_progress_bar=false"]
    overrides += [f"output_dir={tmp_path / 'run'}", f"hydra.run.dir={tmp_path / 'run'}"]
    said = torchrun(str(ROOT / "runners" / "train.py"), *overrides, environments=environments)
    # Two epochs of eight pages: each node makes and keeps those that it reads.
    assert sum("train: 8 pages; cache" in line for text in said for line in text.splitlines()) == 2, said
    assert all(any((tmp_path / f"cache-{node}").iterdir()) for node in range(2))
    rows = list(csv.DictReader((tmp_path / "run" / "csv" / "version_0" / "metrics.csv").open()))
    assert len([row for row in rows if row.get("val/hmean")]) == 2

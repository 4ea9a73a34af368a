"""One rank of several: reads two epochs of each dataset, and writes what it saw; started by torchrun."""

import json
import os
import sys
from pathlib import Path
from typing import Any

import torch
from test_webdataset import DEVICE, RANDOM, folder

from ocr.datasets import OCRWebDataset
from ocr.loader import Loader
from ocr.pipeline.fingerprint import content_digest


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
        "stream": Loader(OCRWebDataset(f"{url}/train-{{000000..000002}}.tar", RANDOM, **fetched), 2, **train),
        "val folder": Loader(folder(data, "val", DEVICE), 4),
        "val cache": Loader(folder(data, "val", DEVICE, **kept), 4),
        "val shards": Loader(OCRWebDataset(str(shards / "val-*.tar"), DEVICE), 4),
    }


if __name__ == "__main__":
    data, shards, url, out = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3], Path(sys.argv[4])
    torch.distributed.init_process_group("gloo")
    rank = torch.distributed.get_rank()
    own = out / f"node-{os.environ['GROUP_RANK']}"
    seen = {name: read(loader) for name, loader in loaders(data, shards, url, own).items()}
    (out / f"rank-{rank}.json").write_text(json.dumps(seen))
    torch.distributed.destroy_process_group()

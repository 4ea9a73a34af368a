"""Pipelines of public packages, each with a known bottleneck, for benchmarks/any_loader.py: one per process.

python -m benchmarks.foreign_pipelines NAME FOLDER ITEMS

Their packages are imported where they are used: each runs in an environment that has only its own.
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader

from benchmarks.peer_loaders import Peer
from benchmarks.peer_worker import tell

Step = Callable[[Any], object]
Opened = tuple[Iterable[Any], Step]
BATCH = 16
SIDE = 128
STORAGE_SECONDS = 0.02
REPEATED = 8
"""The same images so many times where an epoch would else be over in a tenth of a second."""


@dataclass(frozen=True)
class Pipeline:
    """One of them, and what holds it up."""

    title: str
    open: Callable[[Path], Opened]
    built_in: str
    """What was built in, in words."""
    bottleneck: str
    """What the advisor must name."""
    packages: tuple[str, ...] = ()
    environment: str = "here"
    """Folder of the environment, which a peer may have made already."""

    @property
    def peer(self) -> Peer:
        """For the environment."""
        return Peer(self.title, self.environment, self.packages, "")


class ModelStep:
    """Forward and backward of a model on the images of a batch."""

    def __init__(self, model: torch.nn.Module) -> None:
        self.model = model.train()

    def __call__(self, batch: Any) -> None:
        images = batch[0] if isinstance(batch, list | tuple) else batch["img"].float()
        self.model(images).square().mean().backward()
        self.model.zero_grad(set_to_none=True)


def small_model(width: int) -> torch.nn.Module:
    """Three convolutions, whose cost grows with the square of their width."""
    layers: list[torch.nn.Module] = []
    for before, after in ((3, width), (width, width), (width, width)):
        layers += [torch.nn.Conv2d(before, after, 3, stride=2, padding=1), torch.nn.ReLU()]
    return torch.nn.Sequential(*layers)


def crops() -> Any:
    """The usual random transforms of a classifier."""
    from torchvision.transforms import v2

    return v2.Compose(
        [
            v2.RandomResizedCrop(SIDE),
            v2.RandomHorizontalFlip(),
            v2.PILToTensor(),
            v2.ToDtype(torch.float32, scale=True),
        ]
    )


def image_folder(folder: Path) -> Opened:
    """A classifier on an ImageFolder: JPEGs are decoded in the training loop."""
    from torchvision.datasets import ImageFolder

    dataset = ImageFolder(str(folder / "images"), crops())
    return DataLoader(dataset, BATCH, shuffle=True), ModelStep(small_model(8))


def from_slow_storage(path: str) -> Any:
    """An image that takes a while to arrive."""
    from torchvision.datasets.folder import default_loader

    time.sleep(STORAGE_SECONDS)
    return default_loader(path)


def slow_storage(folder: Path) -> Opened:
    """The same with storage that answers late."""
    from torchvision.datasets import ImageFolder

    dataset = ImageFolder(str(folder / "images"), crops(), loader=from_slow_storage)
    return DataLoader(dataset, BATCH, num_workers=1, persistent_workers=True), ModelStep(small_model(8))


def timm_loader(folder: Path) -> Opened:
    """Its own dataset, transforms and loader; the model is what takes the time."""
    import timm

    dataset = timm.data.create_dataset("", root=str(folder / "images"), is_training=True)
    loader = timm.data.create_loader(
        dataset,
        (3, SIDE, SIDE),
        BATCH,
        is_training=True,
        use_prefetcher=False,
        num_workers=1,
        persistent_workers=True,
        pin_memory=False,
        device=torch.device("cpu"),
    )
    return loader, ModelStep(timm.create_model("resnet18", pretrained=False))


def masked(rows: Sequence[dict[str, Any]]) -> dict[str, torch.Tensor]:
    """Pad to the longest row and hide some tokens, in plain Python."""
    longest = max(len(row["tokens"]) for row in rows)
    hidden, labels = [], []
    for row in rows:
        tokens = row["tokens"] + [0] * (longest - len(row["tokens"]))
        chosen = [random.random() < 0.15 for _ in tokens]
        hidden.append([1 if hide else token for token, hide in zip(tokens, chosen, strict=True)])
        labels.append([token if hide else -100 for token, hide in zip(tokens, chosen, strict=True)])
    return {"tokens": torch.tensor(hidden), "labels": torch.tensor(labels)}


def hugging_face(folder: Path) -> Opened:
    """Rows of tokens from Arrow; a collate function in plain Python."""
    from datasets import Dataset

    count = 32 * len(list((folder / "images").rglob("*.jpg")))
    lengths = random.Random(0).choices(range(200, 400), k=count)
    rows = Dataset.from_dict({"tokens": [list(range(length)) for length in lengths]})
    rows.save_to_disk(str(folder / "rows"))
    table = torch.nn.Embedding(512, 8)

    def step(batch: dict[str, torch.Tensor]) -> None:
        table(batch["tokens"]).mean().backward()

    return DataLoader(Dataset.load_from_disk(str(folder / "rows")), 32, shuffle=True, collate_fn=masked), step


def ultralytics_data(folder: Path) -> Opened:
    """Its detection dataset with mosaics; workers that are started as new processes for every epoch."""
    from ultralytics.data.dataset import YOLODataset
    from ultralytics.utils import DEFAULT_CFG

    images, names = folder / "images" / "a", {0: "a", 1: "b"}
    dataset = YOLODataset(img_path=str(images), imgsz=SIDE, augment=True, hyp=DEFAULT_CFG, data={"names": names})
    dataset = torch.utils.data.ConcatDataset([dataset] * REPEATED)
    loader = DataLoader(
        dataset, BATCH, num_workers=2, collate_fn=YOLODataset.collate_fn, multiprocessing_context="spawn"
    )
    return loader, ModelStep(small_model(8))


def tar_shards(folder: Path) -> Opened:
    """A webdataset: a stream, decoded in the training loop."""
    import webdataset

    shards = sorted(map(str, (folder / "shards").glob("*.tar")))
    if not shards:
        (folder / "shards").mkdir(exist_ok=True)
        with webdataset.ShardWriter(str(folder / "shards" / "%03d.tar"), maxcount=64, verbose=0) as writer:
            for number, path in enumerate(sorted((folder / "images").rglob("*.jpg"))):
                writer.write(
                    {"__key__": f"{number:06d}", "jpg": path.read_bytes(), "cls": int(path.parent.name == "b")}
                )
        shards = sorted(map(str, (folder / "shards").glob("*.tar")))
    stream = (
        webdataset.WebDataset(shards * REPEATED, shardshuffle=False).shuffle(32).decode("pil").to_tuple("jpg", "cls")
    )
    stream = stream.map_tuple(crops()).batched(BATCH // 4)
    return DataLoader(stream, batch_size=None), ModelStep(small_model(8))


def as_arrays(items: Sequence[tuple[torch.Tensor, ...]]) -> list[Any]:
    """A list per batch, as detectors take images of several sizes."""
    return [image.numpy() for (image,) in items]


def stacked(images: Sequence[Any]) -> None:
    """What the model does first with such a list."""
    torch.stack([torch.from_numpy(image) for image in images]).mean()


def large_arrays(folder: Path) -> Opened:
    """Images in memory, as lists of NumPy arrays, which are pickled on their way from a worker."""
    from torch.utils.data import Subset, TensorDataset

    count = len(list((folder / "images").rglob("*.jpg")))
    images = TensorDataset(torch.rand(BATCH, 3, 384, 384))
    dataset = Subset(images, [number % BATCH for number in range(REPEATED * count)])
    return DataLoader(dataset, BATCH, num_workers=1, persistent_workers=True, collate_fn=as_arrays), stacked


DATASET, LOADING = "the dataset", "the loader"
PIPELINES = {
    "image-folder": Pipeline("torchvision ImageFolder", image_folder, "decoding", DATASET, ("torchvision",)),
    "slow-storage": Pipeline(
        "torchvision ImageFolder, slow storage", slow_storage, "waiting for storage", DATASET, ("torchvision",)
    ),
    "timm": Pipeline("timm", timm_loader, "the model", "model", ("timm",)),
    "datasets": Pipeline(
        "Hugging Face datasets", hugging_face, "collating in Python", "collating", ("datasets",), "hf_datasets"
    ),
    "ultralytics": Pipeline(
        "ultralytics",
        ultralytics_data,
        "starting workers",
        "starting the workers",
        ("ultralytics",),
        "ultralytics_data",
    ),
    "webdataset": Pipeline("webdataset", tar_shards, "decoding a stream", LOADING, ("webdataset", "torchvision")),
    "arrays": Pipeline("torch, lists of arrays", large_arrays, "pickling", "the way between processes"),
}


def main() -> None:
    from ocr.advisor import advise

    name, folder, items = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
    torch.manual_seed(0)
    # So that the step and the workers do not take each other's cores.
    torch.set_num_threads(1)
    loader, step = PIPELINES[name].open(folder)
    found = advise(loader, step, items=items, verify=True, show=False)
    found.show()
    advice, best = found.advice, found.advice.best
    tell(
        result={
            "bottleneck": found.bottleneck,
            "sentence": found.sentence,
            "best": None if best is None else best.name,
            "change": "" if best is None else " ".join(best.overrides),
            "verified": advice.verified,
        }
    )


if __name__ == "__main__":
    main()

"""Advice for loaders that are not GlyphFeed's: pipelines with a known bottleneck, predicted and run."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from PIL import Image, ImageFilter
from torch.utils.data import ConcatDataset, DataLoader, Subset, TensorDataset

from benchmarks.harness import Data, Figure, Row, Target, benchmark, fresh_process

BATCH, SIDE = 16, 128
STORAGE_SECONDS = 0.02
REPEATED = 8
"""The same images so many times where an epoch would else be over in a tenth of a second."""
WITHIN = 15
"""Percent: the largest error of a prediction."""
Step = Callable[[Any], object]
Opened = tuple[Iterable[Any], Step]


class ModelStep:
    """Forward and backward of a model on the images of a batch."""

    def __init__(self, model: torch.nn.Module) -> None:
        self.model = model.train()

    def __call__(self, batch: Any) -> None:
        self.model(batch[0]).square().mean().backward()
        self.model.zero_grad(set_to_none=True)


def small_step() -> ModelStep:
    """Of three convolutions, which take less time than decoding."""
    layers: list[torch.nn.Module] = []
    for before in (3, 8, 8):
        layers += [torch.nn.Conv2d(before, 8, 3, stride=2, padding=1), torch.nn.ReLU()]
    return ModelStep(torch.nn.Sequential(*layers))


def crops() -> Any:
    """The usual random transforms of a classifier."""
    from torchvision.transforms import v2

    floats = v2.ToDtype(torch.float32, scale=True)
    return v2.Compose([v2.RandomResizedCrop(SIDE), v2.RandomHorizontalFlip(), v2.PILToTensor(), floats])


def image_folder(folder: Path) -> Opened:
    """A classifier on an ImageFolder: JPEGs are decoded in the training loop."""
    from torchvision.datasets import ImageFolder

    return DataLoader(ImageFolder(str(folder / "images"), crops()), BATCH, shuffle=True), small_step()


def from_slow_storage(path: str) -> Any:
    """An image that takes a while to arrive."""
    from torchvision.datasets.folder import default_loader

    time.sleep(STORAGE_SECONDS)
    return default_loader(path)


def slow_storage(folder: Path) -> Opened:
    """The same with storage that answers late."""
    from torchvision.datasets import ImageFolder

    dataset = ImageFolder(str(folder / "images"), crops(), loader=from_slow_storage)
    return DataLoader(dataset, BATCH, num_workers=1, persistent_workers=True), small_step()


def started_workers(folder: Path) -> Opened:
    """Workers that are started as new processes for every epoch."""
    from torchvision.datasets import ImageFolder

    dataset = ImageFolder(str(folder / "images"), crops())
    return DataLoader(dataset, BATCH, num_workers=2, multiprocessing_context="spawn"), small_step()


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


def masked(rows: Sequence[list[int]]) -> dict[str, torch.Tensor]:
    """Pad to the longest row and hide some tokens, in plain Python."""
    longest, hidden, labels = max(map(len, rows)), [], []
    for row in rows:
        tokens = row + [0] * (longest - len(row))
        chosen = [random.random() < 0.15 for _ in tokens]
        hidden.append([1 if hide else token for token, hide in zip(tokens, chosen, strict=True)])
        labels.append([token if hide else -100 for token, hide in zip(tokens, chosen, strict=True)])
    return {"tokens": torch.tensor(hidden), "labels": torch.tensor(labels)}


def tokens(folder: Path) -> Opened:
    """Rows of tokens; a collate function in plain Python."""
    count = 32 * len(list((folder / "images").rglob("*.jpg")))
    rows: Any = [list(range(length)) for length in random.Random(0).choices(range(200, 400), k=count)]
    table = torch.nn.Embedding(512, 8)
    loader = DataLoader(rows, 32, shuffle=True, collate_fn=masked)
    return loader, lambda batch: table(batch["tokens"]).mean().backward()


def tar_shards(folder: Path) -> Opened:
    """A webdataset: a stream, decoded in the training loop."""
    import webdataset

    target = folder / "shards"
    target.mkdir()
    with webdataset.ShardWriter(str(target / "%03d.tar"), maxcount=64, verbose=0) as writer:
        for number, path in enumerate(sorted((folder / "images").rglob("*.jpg"))):
            writer.write({"__key__": f"{number:06d}", "jpg": path.read_bytes(), "cls": int(path.parent.name == "b")})
    stream = webdataset.WebDataset(sorted(map(str, target.glob("*.tar"))) * REPEATED, shardshuffle=False).shuffle(32)
    stream = stream.decode("pil").to_tuple("jpg", "cls").map_tuple(crops()).batched(BATCH // 4)
    return DataLoader(stream, batch_size=None), small_step()


def as_arrays(items: Sequence[tuple[torch.Tensor, ...]]) -> list[Any]:
    """A list per batch, as detectors take images of several sizes."""
    return [image.numpy() for (image,) in items]


def large_arrays(folder: Path) -> Opened:
    """Images in memory, as lists of NumPy arrays, which are pickled on their way from a worker."""
    count = len(list((folder / "images").rglob("*.jpg")))
    images = Subset(TensorDataset(torch.rand(BATCH, 3, 384, 384)), [number % BATCH for number in range(count)])
    dataset = ConcatDataset([images] * REPEATED)
    loader = DataLoader(dataset, BATCH, num_workers=1, persistent_workers=True, collate_fn=as_arrays)
    return loader, lambda arrays: torch.stack([torch.from_numpy(array) for array in arrays]).mean()


class Pipeline(NamedTuple):
    """One of them, what was built in, and what the advisor must name."""

    open: Callable[[Path], Opened]
    built_in: str
    causes: str
    """Words of the cause that must be named."""
    package: str = "torch"


PIPELINES = {
    "torchvision ImageFolder": Pipeline(
        image_folder, "decoding", "reading the dataset|items that never change", "torchvision"
    ),
    "torchvision ImageFolder, slow storage": Pipeline(
        slow_storage, "waiting for storage", "waiting in the dataset|items that never change", "torchvision"
    ),
    "torchvision ImageFolder, new workers": Pipeline(
        started_workers, "starting workers", "starting the workers", "torchvision"
    ),
    "timm": Pipeline(timm_loader, "the model", "the step", "timm"),
    "torch, rows of tokens": Pipeline(tokens, "collating in Python", "collating"),
    "webdataset": Pipeline(tar_shards, "decoding a stream", "while the step waits", "webdataset"),
    "torch, lists of arrays": Pipeline(large_arrays, "pickling", "sending batches"),
}


@benchmark("any-loader", table="results#any-loader", pages=(), rounds=1)
def any_loader(data: Data) -> Iterator[Row | str]:
    """`advise(loader, step)` for pipelines of public packages; `--set any_loader.images=192` changes their length."""
    count, chosen = int(data.setting("any_loader.images", "192")), data.setting("any_loader.only", "").split(",")
    for name, pipeline in PIPELINES.items():
        if not any(part in name for part in chosen):
            continue
        if find_spec(pipeline.package) is None:
            yield f"{name}: not installed here: pip install {pipeline.package}."
            continue
        folder = data.work_folder / pipeline.open.__name__
        make_images(folder, count)
        with fresh_process(1) as process:
            found = process.submit(advise_on, name, folder).result()
        epochs = {one: (predicted, measured) for one, predicted, measured in found["verified"]}
        right = any(words in found["cause"] for words in pipeline.causes.split("|"))
        named = found["cause"] + ("" if right else f" (missed: {pipeline.causes})")
        cells = {"built in": pipeline.built_in, "named": named, **prediction(*epochs["present"])}
        cells["advised"] = found["best"] + (f": {found['change']}" if found["change"] else "")
        if found["best"] in epochs:
            cells |= prediction(*epochs[found["best"]], "then ")
        yield Row(name, cells, f"Epochs of {count} images")


def prediction(predicted: float, measured: float, prefix: str = "") -> dict[str, Figure | Target]:
    """Cells of a prediction and what came of it."""
    error = Target(100 * abs(predicted / measured - 1), " %", at_most=WITHIN)
    cells = {"predicted": Figure(predicted, "s"), "measured": Figure(measured, "s"), "error": error}
    return {prefix + heading: cell for heading, cell in cells.items()}


def advise_on(name: str, folder: Path) -> dict[str, Any]:
    """What is told of a pipeline, and whole epochs of it and of what is advised; in a process of its own."""
    from ocr.advisor import advise

    torch.manual_seed(0)
    loader, step = PIPELINES[name].open(folder)
    found = advise(loader, step, verify=True)
    best = found.best
    return {
        "cause": found.cause,
        "best": "nothing" if best is None else best.change.name,
        "change": "" if best is None else " ".join(best.change.overrides),
        "verified": found.verified,
    }


def make_images(folder: Path, count: int) -> None:
    """JPEGs of two classes."""
    rng = np.random.default_rng(0)
    for number in range(count):
        path = folder / "images" / "ab"[number % 2] / f"{number:04d}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        noise = Image.fromarray(rng.integers(0, 256, (480, 640, 3), dtype=np.uint8))
        noise.filter(ImageFilter.GaussianBlur(2)).save(path, quality=90)

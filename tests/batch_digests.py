"""Digests of batches from every path through the data, to prove that a refactoring changes no sample.

    python tests/batch_digests.py before.json             # record
    python tests/batch_digests.py before.json --check     # compare: exit status 1 if any batch differs

Digests depend on the CPU and on library versions, so record and check on one machine.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

ROOT = Path(__file__).resolve().parent.parent
RECEIPTS = ROOT.parent / "shared" / "data" / "receipts"
SIZE = 160


def feed(hashed: Any, value: Any) -> None:
    """Add a value to a digest, with its type and shape, all the way down."""
    if isinstance(value, torch.Tensor):
        feed(hashed, value.contiguous().numpy())
    elif isinstance(value, np.ndarray):
        hashed.update(f"{value.dtype} {value.shape}".encode())
        hashed.update(np.ascontiguousarray(value).tobytes())
    elif isinstance(value, dict):
        for key in sorted(value):
            hashed.update(key.encode())
            feed(hashed, value[key])
    elif isinstance(value, list | tuple):
        hashed.update(f"[{len(value)}]".encode())
        for element in value:
            feed(hashed, element)
    else:
        hashed.update(repr(value).encode())


def digest(batches: Iterable[Any]) -> str:
    """One digest of all batches; paths depend on where the data lies and do not count."""
    hashed = hashlib.sha256()
    for batch in batches:
        feed(hashed, {name: value for name, value in batch.items() if name != "image_path"})
    return hashed.hexdigest()[:24]


def folder_cases(data: Path, cache_folder: Path) -> Iterator[tuple[str, Callable[[], str]]]:
    """A folder of pages: both splits, normalised on host and device, with every cache and engine."""
    from ocr.datasets import DBTransforms, OCRDataset
    from ocr.loader import Loader
    from ocr.pipeline.device import Normalize
    from ocr.pipeline.prefix import Letterbox
    from ocr.pipeline.suffix import (
        ColourJitter,
        JpegNoise,
        RandomBlur,
        RandomFlip,
        RandomRotate,
        RandomScale,
        RandomWindow,
        TextAwareCrop,
    )

    colours = (ColourJitter(p=0.8), RandomBlur(p=0.5), JpegNoise(p=0.5))
    warp = (TextAwareCrop(), RandomFlip(), RandomRotate(), RandomScale())
    paths = {
        "val": [Letterbox(SIZE)],
        "train warp": [Letterbox(2 * SIZE), *warp, Letterbox(SIZE), *colours],
        "val page": [Letterbox(SIZE, shape="page")],
        "train page": [Letterbox(2 * SIZE, shape="page"), *warp, Letterbox(SIZE, shape="page"), *colours],
        "train window": [Letterbox(2 * SIZE), RandomRotate(), RandomScale(), RandomWindow(SIZE), *colours],
    }

    def open_split(name: str, normalize: str, **settings: Any) -> Any:
        split = name.split()[0]
        transform = DBTransforms([*paths[name], Normalize()], normalize=normalize)
        folder = data / "images" / split
        return OCRDataset(folder, data / "jsons" / f"{split}.json", transform, seed=5, **settings)

    for name in paths:
        for normalize in ("host", "device"):
            for cache in ("off", "auto"):
                for engine, workers in (("threads", 2), ("threads", 0), ("processes", 2)):

                    def case(name=name, normalize=normalize, cache=cache, engine=engine, workers=workers) -> str:
                        dataset = open_split(name, normalize, cache=cache, cache_folder=cache_folder)
                        settings = {"multiprocessing_context": "fork"} if engine == "processes" else {}
                        shuffle = name.startswith("train")
                        loader = Loader(dataset, 3, workers, engine, shuffle=shuffle, seed=2, **settings)
                        return digest([*loader, *loader])

                    yield f"{name}, {normalize}, cache {cache}, {workers} {engine}", case


def config_cases(data: Path, out: Path) -> Iterator[tuple[str, Callable[[], str]]]:
    """The given config, its Albumentations variant, tar shards and DALI."""
    from ocr.datasets.data_module import OCRDataModule
    from ocr.jobs.compose import compose_training
    from ocr.tools.convert.convert import convert_split
    from ocr.tools.convert.plan import make_plan
    from ocr.tools.convert.settings import ConvertSettings

    small = [f"transforms.size={SIZE}", f"dataset_base_path={data}", f"cache.folder={out / 'cache'}", "seed=3"]
    small += [f"dataloaders.{split}_dataloader.batch_size=3" for split in ("train", "val")]
    small += ["transforms.letterbox.shape=square"]

    def loaded(split: str, *overrides: str) -> str:
        loader = OCRDataModule(compose_training([*small, *overrides])).loader(split)
        return digest([*loader, *loader])

    albumentations = (
        "transforms.train_transform.transforms=[${transforms.letterbox},{_target_:albumentations.HorizontalFlip,p:0.5},"
        "{_target_:albumentations.Rotate,limit:8,p:0.9},{_target_:albumentations.CLAHE,p:0.5},${transforms.normalization}]"
    )
    for split in ("train", "val"):
        yield f"config {split}", lambda split=split: loaded(split)
        yield f"config {split}, cache off", lambda split=split: loaded(split, "data.cache=off")
        yield f"config {split}, host", lambda split=split: loaded(split, "transforms.normalize=host")
        for suffix in ("dali", "host"):
            dali = ("use_dali=true", "dali.device=cpu", f"dali.suffix={suffix}")
            yield f"config {split}, DALI {suffix}", lambda split=split, dali=dali: loaded(split, *dali)
    yield "albumentations", lambda: loaded("train", albumentations)
    kinds: dict[str, dict[str, Any]] = {
        "raw": {},
        "ready": {"ready": True},
    }
    for kind, settings in kinds.items():

        def shards(kind: str = kind, settings: dict[str, Any] = settings) -> str:
            config = compose_training([*small, "data.cache=off"])
            dataset = OCRDataModule(config).dataset("val")
            wanted = ConvertSettings(samples_per_shard=3, **settings)
            convert_split(make_plan(dataset, "val", out / kind, wanted), wanted, show_progress=False)
            base = f"datasets.val_dataset.tar_path={out / kind}/val-*.tar"
            return loaded("val", "data=webdataset", base)

        yield f"shards {kind}", shards


def record(data: Path) -> dict[str, str]:
    """The digest of every case."""
    with tempfile.TemporaryDirectory() as scratch:
        cases = [*folder_cases(data, Path(scratch) / "cache"), *config_cases(data, Path(scratch))]
        return {name: case() for name, case in cases}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--check", action="store_true", help="compare with the file instead of writing it")
    arguments = parser.parse_args()
    from ocr.tools.synth import synthesize

    found: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as scratch:
        data = Path(scratch) / "data"
        synthesize(data, train=8, val=6, seed=3, megapixels=(0.5, 1.2), workers=1, show_progress=False)
        found |= {f"synthetic: {name}": value for name, value in record(data).items()}
        if RECEIPTS.is_dir():
            found |= {f"receipts: {name}": value for name, value in record(few_receipts(Path(scratch))).items()}
    if not arguments.check:
        arguments.file.write_text(json.dumps(found, indent=1) + "\n")
        print(f"{len(found)} digests: {arguments.file}")
        return 0
    expected = json.loads(arguments.file.read_text())
    differing = [name for name in expected if found.get(name) != expected[name]]
    print("\n".join(f"differs: {name}" for name in differing) or f"all {len(expected)} digests are equal")
    return int(bool(differing))


def few_receipts(scratch: Path) -> Path:
    """Links to a dozen of the real pages of each split."""
    folder = scratch / "receipts"
    for split in ("train", "val"):
        annotation = json.loads((RECEIPTS / "jsons" / f"{split}.json").read_text())
        names = sorted(annotation["images"])[:12]
        (folder / "images" / split).mkdir(parents=True)
        (folder / "jsons").mkdir(exist_ok=True)
        for name in names:
            (folder / "images" / split / name).symlink_to(RECEIPTS / "images" / split / name)
        chosen = {"images": {name: annotation["images"][name] for name in names}}
        (folder / "jsons" / f"{split}.json").write_text(json.dumps(chosen))
    return folder


if __name__ == "__main__":
    sys.exit(main())

"""The loaders that table.py compares: one file each, run in an environment that has its packages.

A file has `open_loader(course, training, **settings)`, an iterable of batches whose every pass is an epoch, and, if
there is something to do once before, `prepare(course)`. A loader with `state_dict` and `load_state_dict` is tried for
resuming.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

OURS = "GlyphFeed"


@dataclass(frozen=True)
class Peer:
    """What is known of a loader without importing it."""

    title: str
    module: str
    """The file in this folder."""
    packages: tuple[str, ...]
    """What pip installs if this environment lacks it."""
    reads: str
    """What each epoch starts from."""
    documentation: str = ""
    settings: dict[str, Any] = field(default_factory=dict)
    prepares: bool = False
    """Whether its file has `prepare`."""
    hint: str = ""
    """What else the system needs."""

    @property
    def is_ours(self) -> bool:
        return self.title.startswith(OURS)


FILES = "image files"
PAGES = "letterboxed pages"
PEERS = {
    "raw": Peer(f"{OURS}, raw cache", "glyphfeed", (), PAGES, settings={"cache": "auto", "cache_form": "raw"}),
    "dense": Peer(f"{OURS}, dense cache", "glyphfeed", (), PAGES, settings={"cache": "auto", "cache_form": "dense"}),
    "uncached": Peer(f"{OURS}, no cache", "glyphfeed", (), FILES, settings={"cache": "off"}),
    "torch": Peer(
        "torch DataLoader, Pillow, Albumentations",
        "torch_albumentations",
        ("albumentations",),
        FILES,
        "https://docs.pytorch.org/docs/stable/data.html",
    ),
    "torchvision": Peer(
        "torch DataLoader, torchvision's decoder",
        "torchvision_decoder",
        ("torchvision",),
        FILES,
        "https://docs.pytorch.org/vision/stable/io.html",
    ),
    "torchdata": Peer(
        "torchdata StatefulDataLoader, Pillow",
        "torchdata_stateful",
        ("torchdata",),
        FILES,
        "https://meta-pytorch.org/data/stable/torchdata.stateful_dataloader.html",
    ),
    "webdataset": Peer(
        "webdataset, Pillow",
        "webdataset_shards",
        ("webdataset",),
        "image files in tar shards",
        "https://webdataset.github.io/webdataset/",
        prepares=True,
    ),
    "litdata": Peer(
        "LitData",
        "litdata_chunks",
        ("litdata",),
        f"{PAGES} in chunks",
        "https://github.com/Lightning-AI/litdata",
        prepares=True,
    ),
    "mosaic": Peer(
        "Mosaic Streaming",
        "mosaic_shards",
        ("mosaicml-streaming", "torchvision"),
        f"{PAGES} in MDS shards",
        "https://docs.mosaicml.com/projects/streaming",
        prepares=True,
    ),
    "spdl": Peer(
        "SPDL",
        "spdl_pipeline",
        ("spdl",),
        FILES,
        "https://facebookresearch.github.io/spdl/main/",
        hint="FFmpeg's shared libraries (Debian: libavdevice59 libavfilter8)",
    ),
    "grain": Peer(
        "Grain",
        "grain_records",
        ("grain", "array-record"),
        f"{PAGES} in ArrayRecord",
        "https://google-grain.readthedocs.io",
        prepares=True,
    ),
    "ffcv": Peer(
        "FFCV",
        "ffcv_beton",
        ("ffcv",),
        f"{PAGES} in one file",
        "https://docs.ffcv.io",
        prepares=True,
        hint="pkg-config, libopencv-dev and libturbojpeg0-dev",
    ),
    "dali": Peer(
        "DALI on the CPU",
        "dali_pipeline",
        ("nvidia-dali-cuda130",),
        FILES,
        "https://docs.nvidia.com/deeplearning/dali/user-guide/docs/",
    ),
    "datasets": Peer(
        "Hugging Face datasets",
        "hf_datasets",
        ("datasets",),
        FILES,
        "https://huggingface.co/docs/datasets/image_load",
        prepares=True,
    ),
    "monai-memory": Peer(
        "MONAI CacheDataset",
        "monai_caches",
        ("monai",),
        f"{PAGES} and maps in memory",
        "https://docs.monai.io/en/stable/data.html",
        {"kind": "memory"},
    ),
    "monai-disk": Peer(
        "MONAI PersistentDataset",
        "monai_caches",
        ("monai",),
        f"{PAGES} and maps in files",
        "https://docs.monai.io/en/stable/data.html",
        {"kind": "disk"},
    ),
}

"""Export: a checkpoint as a model of another runtime, proven on pages before it is written."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path

from omegaconf import DictConfig
from rich.console import Console
from rich.markup import escape

from ocr.checks import check_flag, check_integer
from ocr.deploy.detector import Detector
from ocr.deploy.export import Export, Exporter
from ocr.deploy.inputs import PageSource
from ocr.deploy.runtimes.torch_runtime import wrap_detector
from ocr.errors import ConfigError
from ocr.geometry.kernels.warm_up import warm_up
from ocr.jobs.page_files import as_folder
from ocr.jobs.run import run_job
from ocr.models.load import load_detector
from ocr.models.packaged import packaged_detector
from ocr.pipeline.decode import Decode
from ocr.pipeline.sample import Sample
from ocr.pipeline.source import FolderSource, open_folder


def export(config: DictConfig, console: Console) -> Path:
    """Write `out`: the model with its settings and its check in the metadata."""
    out = as_folder("out", config.out)
    check_flag("force", config.force)
    threads = None if config.threads.model == "auto" else config.threads.model
    images, annotations = _proof_folders(config)
    exporter = Exporter(
        Export(
            config.format,
            config.precision,
            out,
            folder_pages(images, annotations, config.pages, "pages"),
            folder_pages(_calibration_folder(config), None, config.calibration_pages, "calibration_pages"),
            threads,
            config.force,
        ),
        console,
    )
    detector, settings = load_detector(str(config.checkpoint_path or packaged_detector()))
    warm_up()
    reference = Detector(wrap_detector(detector, settings))
    exporter.run(detector, settings, reference)
    size = sum(file.stat().st_size for file in out.iterdir())
    console.print(f"{config.format} {config.precision}, {size / 1e6:.1f} MB: {escape(str(out))}", highlight=False)
    return out


def _proof_folders(config: DictConfig) -> tuple[str | None, str | None]:
    if config.images is not None:
        return str(config.images), None if config.annotations is None else str(config.annotations)
    if config.annotations is not None:
        raise ConfigError(
            f"annotations={config.annotations}, but images is not set. Set the folder of their pages",
            setting="images",
            value=None,
            path=config.annotations,
        )
    if config.dataset_base_path is None:
        return None, None
    return f"{config.dataset_base_path}/images/val", f"{config.dataset_base_path}/jsons/val.json"


def _calibration_folder(config: DictConfig) -> str | None:
    if config.precision != "int8":
        return None
    if config.calibration is not None:
        return str(config.calibration)
    return None if config.dataset_base_path is None else f"{config.dataset_base_path}/images/train"


def folder_pages(images: str | None, annotations: str | None, limit: int, setting: str) -> list[PageSource]:
    """At most `limit` pages, spread evenly over the folder."""
    check_integer(setting, limit, minimum=1)
    if images is None:
        return []
    source = open_folder(images, annotations)
    count = min(limit, len(source))
    chosen = [index * len(source) // count for index in range(count)]
    return [PageSource(source.names[index], None, partial(_read, source, index)) for index in chosen]


def _read(source: FolderSource, index: int, decode: Decode) -> Sample:
    return decode(source.read(index))


def main() -> None:
    """`ocr export`."""
    # Hydra knows no options of ours.
    sys.argv[1:] = ["force=true" if word == "--force" else word for word in sys.argv[1:]]
    run_job("export", export, "interrupted: nothing was written")


if __name__ == "__main__":
    main()

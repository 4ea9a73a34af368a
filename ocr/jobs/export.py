"""Export: a checkpoint as a model of another runtime, checked on pages before it is written."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path

import cv2
from rich.console import Console
from rich.markup import escape

from ocr.checks import check_integer
from ocr.deploy.detector import Detector
from ocr.deploy.export import Export, Exporter
from ocr.deploy.inputs import PageSource
from ocr.deploy.runtimes.torch_runtime import wrap_detector
from ocr.errors import ConfigError
from ocr.geometry.kernels.warm_up import warm_up
from ocr.models.load import load_detector
from ocr.models.packaged import named_detector
from ocr.pipeline.decode import Decode
from ocr.pipeline.sample import Sample
from ocr.pipeline.source import FolderSource, open_folder


@dataclass(frozen=True, slots=True)
class ExportSettings:
    """The arguments of `glyphfeed export`."""

    model: str
    format: str = "onnx"
    precision: str = "fp32"
    out: Path = Path("exported")
    data: Path | None = None
    pages: Path | None = None
    """A folder of other pages to check it on."""
    labels: Path | None = None
    """Their annotation."""
    calibration: Path | None = None
    limit: int = 32
    """Pages, spread over the folder."""
    threads: int | None = None
    force: bool = False

    def check_folders(self) -> tuple[Path | None, Path | None]:
        """The images and the annotation of the pages that check the model."""
        if self.pages is not None:
            return self.pages, self.labels
        if self.labels is not None:
            raise ConfigError(
                f"--labels {self.labels}, but --pages is not set. Set the folder of their pages",
                setting="--pages",
                value=None,
                path=self.labels,
            )
        if self.data is None:
            return None, None
        return self.data / "images/val", self.data / "jsons/val.json"

    def calibration_folder(self) -> Path | None:
        """The pages whose values set the ranges of int8."""
        if self.precision != "int8" or self.calibration is not None or self.data is None:
            return self.calibration
        return self.data / "images/train"


def export(settings: ExportSettings, console: Console) -> Path:
    """Write `out`: the model with its settings and its check in the metadata."""
    check_integer("--limit", settings.limit, minimum=1)
    cv2.setNumThreads(1)
    out, threads = settings.out, settings.threads
    checked = folder_pages(*settings.check_folders(), settings.limit)
    calibration = folder_pages(settings.calibration_folder(), None, settings.limit)
    request = Export(settings.format, settings.precision, out, checked, calibration, threads, settings.force)
    exporter = Exporter(request, console)
    detector, stored = load_detector(named_detector(settings.model))
    warm_up()
    exporter.run(detector, stored, Detector(wrap_detector(detector, stored)))
    size = sum(file.stat().st_size for file in out.iterdir())
    written = f"{settings.format} {settings.precision}, {size / 1e6:.1f} MB: {escape(str(out))}"
    console.print(written, highlight=False, soft_wrap=True)
    return out


def folder_pages(images: str | Path | None, annotations: str | Path | None, limit: int) -> list[PageSource]:
    """At most `limit` pages, spread evenly over the folder."""
    if images is None:
        return []
    source = open_folder(images, annotations)
    count = min(limit, len(source))
    chosen = [index * len(source) // count for index in range(count)]
    return [PageSource(source.names[index], None, partial(_read, source, index)) for index in chosen]


def _read(source: FolderSource, index: int, decode: Decode) -> Sample:
    return decode(source.read(index))

"""export: build a model, check it, and only then put it where it was asked for."""

from __future__ import annotations

import os
import shutil
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from rich.console import Console
from rich.markup import escape

from ocr.deploy import formats
from ocr.deploy.detector import Detector
from ocr.deploy.export_check import Check, Checker
from ocr.deploy.graph import exportable
from ocr.deploy.inputs import PageSource
from ocr.deploy.model_file import NAMES, ModelInfo
from ocr.deploy.quantize import quantize
from ocr.deploy.runtimes import open_model
from ocr.errors import ConfigError, GlyphFeedError, OutputError
from ocr.models import card
from ocr.models.detector import TextDetector
from ocr.models.settings import DetectorSettings, installed_versions
from ocr.pipeline.device import Normalize

FAILED = "-failed"
"""Behind the name of the folder of a model that failed its check."""


class CheckError(GlyphFeedError):
    """An exported model does not find what its checkpoint finds."""


@dataclass(frozen=True, slots=True)
class Export:
    """What to write, and the pages that check it."""

    format: str
    precision: str
    out: Path
    pages: Sequence[PageSource]
    calibration: Sequence[PageSource] = ()
    """Pages whose values set the ranges of int8."""
    threads: int | None = None
    force: bool = False
    """Put a model that fails its check into `out` all the same."""

    def check(self) -> None:
        """Raise ConfigError for all that cannot work, before anything is computed."""
        formats.check_format(self.format, self.precision)
        if not self.pages:
            raise ConfigError(
                "there are no pages to check the export on. Set --data DIR or --pages FOLDER", setting="--data"
            )
        if self.precision == "int8" and not self.calibration:
            raise ConfigError(
                "--precision int8 needs pages like those of the training to set its ranges. Set --data DIR or "
                "--calibration FOLDER",
                setting="--calibration",
            )
        for out in (self.out, self.failed_out):
            check_out(out)

    @property
    def failed_out(self) -> Path:
        """Where a model goes that failed its check."""
        return self.out.with_name(f"{self.out.name}-{self.precision}{FAILED}")


class Exporter:
    """One export, reported on a console."""

    def __init__(self, request: Export, console: Console) -> None:
        request.check()
        self.request, self.console = request, console
        self._onnx: Any = None

    def run(self, detector: TextDetector, settings: DetectorSettings, reference: Detector) -> Check:
        """Write the folder `out`; `reference` is the same detector.

        A model that fails its check goes into a folder whose name says so, next to `out`, and raises CheckError.
        """
        request = self.request
        checker = Checker(reference, request.pages, request.threads)
        out = request.out.resolve()  # Of a link, the folder that it leads to is replaced.
        check = self._write(request, detector, settings, checker, out)
        if not check.failures or request.force:
            return check
        proposal = self._proposal(detector, settings, checker)
        raise CheckError(
            f"--to {request.format} --precision {request.precision} fails its check: {'; '.join(check.failures)}. "
            f"The model is in {request.failed_out}, not in {request.out}. {proposal}--force puts it there",
            setting="--precision",
            value=request.precision,
            path=request.failed_out,
        )

    def _write(
        self, request: Export, detector: TextDetector, settings: DetectorSettings, checker: Checker, out: Path
    ) -> Check:
        """Build, check, and put the model into `out`, or next to it if it fails."""
        folder = _beside(out, ".partial")
        try:
            with closing(self._builds(request, detector, settings, checker.reference)) as builds:
                save, info, check = self._first_good(request, builds, folder, settings, checker)
            save(folder, replace(info, check=check.to_dict()))
            rows = [(f"pages: {check.pages}", "", ""), *check.rows()]
            title = f"for {request.format}, {request.precision}"
            card.write_card(folder, NAMES[request.format], settings, rows, title)
            _put(folder, out if not check.failures or request.force else request.failed_out.resolve())
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        return check

    def _first_good(
        self,
        request: Export,
        builds: Iterator[formats.Save],
        folder: Path,
        settings: DetectorSettings,
        checker: Checker,
    ) -> tuple[formats.Save, ModelInfo, Check]:
        """The first build that passes; if none does, the last one."""
        info = ModelInfo(settings, request.format, request.precision, versions=_versions(request.format))
        for save in builds:
            save(folder, info)
            exported = Detector(open_model(folder, "auto", request.threads))
            check = checker.check(exported, request.precision)
            self.console.print(check.table(f"{request.format} {request.precision}"))
            del exported  # It might have mapped the files that are written again.
            if not check.failures or request.force:
                break
        return save, info, check

    def _proposal(self, detector: TextDetector, settings: DetectorSettings, checker: Checker) -> str:
        """bf16 instead of an int8 that failed: half the bytes, with the range of float32."""
        # ONNX Runtime has no bfloat16 on a CPU; OpenVINO has.
        format = "openvino" if self.request.format == "onnx" else self.request.format
        if self.request.precision != "int8" or not all(map(find_spec, formats.NEEDS[format])):
            return ""
        self._tell(f"int8 fails: trying --to {format} --precision bf16")
        other = replace(self.request, format=format, precision="bf16")
        folder = Path(mkdtemp(prefix="glyphfeed-bf16-"))
        try:
            with closing(self._builds(other, detector, settings, checker.reference)) as builds:
                _, _, check = self._first_good(other, builds, folder, settings, checker)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        if check.failures:
            return ""
        gain = check.milliseconds[0] / check.milliseconds[1]
        return f"--to {format} --precision bf16 passes, {gain:.1f} x as fast as the checkpoint. "

    def _builds(
        self, request: Export, detector: TextDetector, settings: DetectorSettings, reference: Detector
    ) -> Generator[formats.Save]:
        """The model; of int8 several, if they are asked for, each slower and closer to the checkpoint."""
        # OpenVINO and TensorRT choose the type of each layer themselves, from float32.
        own_types = request.format in ("openvino", "tensorrt")
        dtype = formats.DTYPES["fp32" if own_types else request.precision]
        normalize = settings.build("normalization", Normalize)
        if request.format == "torchscript":
            yield formats.torchscript_saver(exportable(detector, normalize, dtype))
            return
        if self._onnx is None or dtype != formats.DTYPES["fp32"]:
            self._onnx = formats.onnx_model(exportable(detector, normalize, dtype))
        models = self._quantized(self._onnx, reference) if request.precision == "int8" else iter([self._onnx])
        for model in models:
            if request.format == "onnx":
                yield formats.onnx_saver(model)
            elif request.format == "openvino":
                yield formats.openvino_saver(model, request.precision)
            else:
                yield formats.tensorrt_saver(model, request.precision, settings.page_size)

    def _quantized(self, model: Any, reference: Detector) -> Iterator[Any]:
        pages = [reference.prepare(page).image[None] for page in self.request.calibration]
        self._tell(f"calibrating on {len(pages)} pages")
        with closing(quantize(model, pages, reference.boxes.thresh, self._tell)) as candidates:
            for made in candidates:
                self._tell(
                    f"int8: {made.changed:.1%} of the text pixels changed, "
                    f"{len(made.float_layers)} layers left in float32"
                )
                yield made.model

    def _tell(self, text: str) -> None:
        self.console.print(escape(text), highlight=False)


def check_out(out: Path) -> None:
    """Raise ConfigError if the folder holds anything but an earlier export."""
    known = {*NAMES.values(), "model.bin", card.NAME}
    if out.exists() and (not out.is_dir() or {entry.name for entry in out.iterdir()} - known):
        raise ConfigError(
            f"--out {out} exists and is not the folder of an export. Choose another one", setting="--out", path=out
        )


def _beside(out: Path, suffix: str) -> Path:
    """A new folder on the same disk."""
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        return Path(mkdtemp(prefix=f".{out.name}.", suffix=suffix, dir=out.parent))
    except OSError as error:
        raise _cannot_write(out, error) from error


def _put(folder: Path, out: Path) -> None:
    """Rename the finished folder; an earlier export is moved away first, so that no reader sees parts of both."""
    old = _beside(out, ".old") if out.exists() else None
    try:
        folder.chmod(0o755)
        if old is not None:
            os.replace(out, old)
        os.replace(folder, out)
    except OSError as error:
        if old is not None:
            with suppress(OSError):
                os.replace(old, out)  # Empty, or the earlier export, which goes back.
            with suppress(OSError):
                old.rmdir()
        raise _cannot_write(out, error) from error
    if old is not None:
        shutil.rmtree(old, ignore_errors=True)


def _cannot_write(out: Path, error: OSError) -> OutputError:
    return OutputError(
        f"cannot write {out} ({error.strerror or error}). Check permissions and free space", setting="--out", path=out
    )


def _versions(format: str) -> dict[str, str]:
    found = installed_versions()
    for name in formats.NEEDS.get(format, ()):
        try:
            found[name] = version(name)
        except PackageNotFoundError:  # onnxruntime-gpu, for example.
            continue
    return found

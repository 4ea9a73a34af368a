"""export: build a model, prove it, and only then put it where it was asked for."""

from __future__ import annotations

import os
import shutil
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from rich.console import Console

from ocr.deploy.detector import Detector
from ocr.deploy.export import formats
from ocr.deploy.export.proof import Proof, prove
from ocr.deploy.export.quantize import quantize
from ocr.deploy.graph import exportable
from ocr.deploy.inputs import PageSource
from ocr.deploy.model_file import NAMES, ModelInfo
from ocr.deploy.runtimes import open_model
from ocr.errors import ConfigError, GlyphFeedError, OutputError
from ocr.models.detector import TextDetector
from ocr.models.settings import DetectorSettings, installed_versions
from ocr.pipeline.device import Normalize


class ProofError(GlyphFeedError):
    """An exported model does not find what its checkpoint finds; it was not written."""


@dataclass(frozen=True, slots=True)
class Export:
    """What to write, and the pages that prove it."""

    format: str
    precision: str
    out: Path
    pages: Sequence[PageSource]
    calibration: Sequence[PageSource] = ()
    """Pages whose values set the ranges of int8."""
    threads: int | None = None
    force: bool = False
    """Write a model that fails its proof."""

    def check(self) -> None:
        """Raise ConfigError for all that cannot work, before anything is computed."""
        formats.check_format(self.format, self.precision)
        if not self.pages:
            raise ConfigError(
                "there are no pages to prove the export on. Set dataset_base_path=DIR or images=FOLDER",
                setting="images",
            )
        if self.precision == "int8" and not self.calibration:
            raise ConfigError(
                "precision=int8 needs pages like those of the training to set its ranges. Set dataset_base_path=DIR "
                "or calibration=FOLDER",
                setting="calibration",
            )
        check_out(self.out)


class Exporter:
    """One export, told on a console."""

    def __init__(self, request: Export, console: Console) -> None:
        request.check()
        self.request, self.console = request, console

    def run(self, detector: TextDetector, settings: DetectorSettings, reference: Detector) -> Proof:
        """Write the folder `out`; raises ProofError if the model fails beside `reference`, the same detector."""
        request = self.request
        info = ModelInfo(settings, request.format, request.precision, versions=_versions(request.format))
        out = request.out.resolve()  # Of a link, the folder that it leads to is replaced.
        folder = _beside(out, ".partial")
        try:
            with closing(self._builds(detector, settings, reference)) as builds:
                save, proof = self._first_proven(builds, folder, info, reference)
            if proof.faults and not request.force:
                raise ProofError(
                    f"format={request.format} precision={request.precision} fails its proof: "
                    f"{'; '.join(proof.faults)}. Nothing was written; force=true writes it all the same",
                    setting="precision",
                    value=request.precision,
                    path=request.out,
                )
            save(folder, replace(info, proof=proof.to_dict()))
            _put(folder, out)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        return proof

    def _first_proven(
        self, builds: Iterator[formats.Save], folder: Path, info: ModelInfo, reference: Detector
    ) -> tuple[formats.Save, Proof]:
        """The first build without faults, or the last one."""
        request = self.request
        for save in builds:
            save(folder, info)
            exported = Detector(open_model(folder, "auto", request.threads))
            proof = prove(reference, exported, request.pages, request.precision, request.threads)
            self.console.print(proof.table(f"{request.format} {request.precision}"))
            del exported  # It may have mapped the files that are written again.
            if not proof.faults or request.force:
                break
        return save, proof

    def _builds(
        self, detector: TextDetector, settings: DetectorSettings, reference: Detector
    ) -> Generator[formats.Save]:
        """The model; of int8 several, if they are asked for, each slower and closer to the checkpoint."""
        request = self.request
        dtype = formats.DTYPES[request.precision]
        # OpenVINO and TensorRT choose the type of each layer themselves, from float32.
        own_types = request.format in ("openvino", "tensorrt")
        normalize = settings.build("normalization", Normalize)
        graph = exportable(detector, normalize, formats.DTYPES["fp32"] if own_types else dtype)
        if request.format == "torchscript":
            yield formats.torchscript_saver(graph)
        elif request.format == "torch_export":
            yield formats.torch_export_saver(graph)
        else:
            model = formats.onnx_model(graph)
            models = self._quantized(model, reference) if request.precision == "int8" else iter([model])
            for each in models:
                yield self._saver(each, settings)

    def _saver(self, model: Any, settings: DetectorSettings) -> formats.Save:
        """Of an ONNX model."""
        request = self.request
        if request.format == "onnx":
            return formats.onnx_saver(model)
        if request.format == "openvino":
            return formats.openvino_saver(model, request.precision)
        return formats.tensorrt_saver(model, request.precision, settings.page_size)

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
        self.console.print(text, highlight=False)


def check_out(out: Path) -> None:
    """Raise ConfigError if the folder holds anything but an earlier export."""
    known = {*NAMES.values(), "model.bin"}
    if out.exists() and (not out.is_dir() or {entry.name for entry in out.iterdir()} - known):
        raise ConfigError(
            f"out={out} exists and is not the folder of an export. Choose another one", setting="out", path=out
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
        f"cannot write out={out} ({error.strerror or error}). Check permissions and free space", setting="out", path=out
    )


def _versions(format: str) -> dict[str, str]:
    found = installed_versions()
    for name in formats.NEEDS.get(format, ()):
        try:
            found[name] = version(name)
        except PackageNotFoundError:  # onnxruntime-gpu, for example.
            continue
    return found

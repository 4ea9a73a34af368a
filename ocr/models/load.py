"""Detector files: a checkpoint (.ckpt) or a .safetensors file to a detector and its settings, and back."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from ocr.atomic import replacing
from ocr.errors import ConfigError
from ocr.models.detector import ARCHITECTURE, TextDetector
from ocr.models.packaged import PACKAGED
from ocr.models.settings import CHECKPOINT_KEY, METADATA_KEY, DetectorSettings
from ocr.models.weights import StateDict

SAFETENSORS = ".safetensors"
MODULE_PREFIX = "model."
"""In front of the detector's weights in a checkpoint, which holds the whole Lightning module."""


@dataclass(frozen=True, slots=True, eq=False)
class StoredDetector:
    """What a detector file holds."""

    setting: str
    """What named the file, for errors."""
    path: Path
    weights: StateDict
    architecture: dict[str, Any] | None
    """None: the file is older than this entry."""
    settings: DetectorSettings | None
    """None: the file was written before detectors carried their settings."""

    @property
    def source(self) -> str:
        """The setting and the path, for errors."""
        return named(self.setting, self.path)

    def build(self) -> tuple[TextDetector, DetectorSettings]:
        """The detector, in evaluation, and its settings; raises ConfigError if the file does not carry them."""
        if self.settings is None:
            raise ConfigError(
                f"{self.source} does not carry the settings of its pages and boxes. Train it again",
                setting=self.setting,
                path=self.path,
            )
        # Only these: a file that names other arguments cannot start a download.
        shape = {name: value for name, value in self.settings.architecture.items() if name in ARCHITECTURE}
        try:
            detector = TextDetector(**shape)
        except Exception as error:  # Of timm and torch, for any value in a file.
            raise ConfigError(
                f"{self.source}: its architecture {shape} cannot be built ({error})",
                setting=self.setting,
                value=shape,
                path=self.path,
            ) from error
        self.load_into(detector)
        return detector.eval(), self.settings

    def load_into(self, detector: TextDetector) -> None:
        """Raises ConfigError, which names both, if the detector has another architecture."""
        detector.load_weights(self.weights, self.architecture, self.source, self.path)


def load_detector(path: str | Path, setting: str = "checkpoint_path") -> tuple[TextDetector, DetectorSettings]:
    """The detector of a file, in evaluation, and its settings."""
    return read_detector(path, setting).build()


def read_detector(path: str | Path, setting: str = "checkpoint_path") -> StoredDetector:
    """Read a file that `glyphfeed train` or `save_detector` wrote, without unpickling; `setting` is named in errors."""
    path = Path(path)
    source = named(setting, path)
    if not path.is_file():
        raise ConfigError(
            f"{source} is not a file. Choose a checkpoint from outputs/<day>/<time>/checkpoints/",
            setting=setting,
            path=path,
        )
    if path.suffix == SAFETENSORS:
        return _read_safetensors(path, setting)
    checkpoint = read_checkpoint(path, setting)
    weights = {
        key.removeprefix(MODULE_PREFIX): value
        for key, value in checkpoint["state_dict"].items()
        if isinstance(key, str) and key.startswith(MODULE_PREFIX)
    }
    stored, architecture = checkpoint.get(CHECKPOINT_KEY), checkpoint.get("architecture")
    if not all(isinstance(value, torch.Tensor) for value in weights.values()):
        raise ConfigError(
            f"{source} has weights that are not tensors. Choose a checkpoint of `glyphfeed train`",
            setting=setting,
            path=path,
        )
    if not isinstance(architecture, dict | None):
        raise ConfigError(
            f"{source} has {architecture!r:.80} for its architecture. Restore it, or choose another checkpoint",
            setting=setting,
            value=architecture,
            path=path,
        )
    settings = None if stored is None else DetectorSettings.from_dict(stored, source, path)
    return StoredDetector(setting, path, weights, architecture, settings)


def named(setting: str, path: Path) -> str:
    """A file of a detector in an error."""
    return f"{setting}={PACKAGED.stem if path == PACKAGED else path}"


def read_checkpoint(path: str | Path, setting: str = "checkpoint_path") -> dict[str, Any]:
    """All that a checkpoint of `glyphfeed train` holds."""
    try:
        checkpoint: dict[str, Any] = torch.load(str(path), map_location="cpu", weights_only=True)
        checkpoint["state_dict"].items()
    except Exception as error:  # Damaged bytes end in any error of the reader.
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise ConfigError(
            f"{setting}={path} is not a checkpoint that `glyphfeed train` wrote ({reason})", setting=setting, path=path
        ) from error
    return checkpoint


def save_detector(path: str | Path, detector: TextDetector, settings: DetectorSettings) -> None:
    """Write a .safetensors file in half precision, with the settings in its metadata; atomic.

    Norms and biases stay float32: they are a few percent of the file, and variances can exceed float16.
    """
    from safetensors.torch import save

    if Path(path).suffix != SAFETENSORS:
        raise ConfigError(f"{path}: detectors are {SAFETENSORS} files. Rename it", path=path)
    tensors = {name: _stored(value) for name, value in detector.state_dict().items()}
    with replacing(path) as stream:
        stream.write(save(tensors, {METADATA_KEY: settings.to_json()}))


def write_settings(path: str | Path, settings: DetectorSettings, target: str | Path) -> None:
    """Write a detector file with other settings and nothing else changed in it, as `target`; atomic."""
    path = Path(path)
    if path.suffix == SAFETENSORS:
        from safetensors.torch import save

        tensors, metadata = _open_safetensors(path, "checkpoint_path")
        written = save(tensors, metadata | {METADATA_KEY: settings.to_json()})
        with replacing(target) as stream:
            stream.write(written)
        return
    checkpoint = read_checkpoint(path)
    with replacing(target) as stream:
        torch.save(checkpoint | {CHECKPOINT_KEY: settings.to_dict()}, stream)


def _stored(tensor: torch.Tensor) -> torch.Tensor:
    # The layout of channels_last is the model's own; the file has the usual one.
    tensor = tensor.detach().cpu().contiguous()
    return tensor.half() if tensor.is_floating_point() and tensor.ndim > 1 else tensor


def _read_safetensors(path: Path, setting: str) -> StoredDetector:
    source = named(setting, path)
    weights, metadata = _open_safetensors(path, setting)
    if METADATA_KEY not in metadata:
        raise ConfigError(
            f"{source} has no settings of a detector. If it has weights of an encoder, set model.weights={path}",
            setting=setting,
            path=path,
        )
    settings = DetectorSettings.from_json(metadata[METADATA_KEY], source, path)
    return StoredDetector(setting, path, weights, settings.architecture, settings)


def _open_safetensors(path: Path, setting: str) -> tuple[StateDict, dict[str, str]]:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="pt") as file:
            return {name: file.get_tensor(name) for name in file.keys()}, file.metadata() or {}  # noqa: SIM118
    except (SafetensorError, OSError, RuntimeError, ValueError) as error:
        raise ConfigError(
            f"{named(setting, path)} is not a .safetensors file ({error})", setting=setting, path=path
        ) from error

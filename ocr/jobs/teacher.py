"""The teacher of a config: `teacher=best.ckpt` brings the targets that its maps were trained on."""

from __future__ import annotations

from omegaconf import DictConfig, OmegaConf
from rich.console import Console
from rich.text import Text

from ocr.datasets.build import make
from ocr.errors import ConfigError
from ocr.jobs.recipe import AUTO
from ocr.jobs.stored_settings import CommandLine, describe
from ocr.models.load import StoredDetector, read_detector
from ocr.models.packaged import named_detector
from ocr.models.settings import DetectorSettings
from ocr.pipeline.device import Normalize
from ocr.pipeline.prefix import Letterbox
from ocr.training.distillation import Distillation
from ocr.training.page_teacher import PageTeacher
from ocr.training.teacher import BatchTeacher

SHARED_TARGETS = ("shrink_ratio", "thresh_min", "thresh_max")
"""What the maps of labels and those of a teacher must have in common."""


def with_teacher_settings(config: DictConfig, command: CommandLine, console: Console) -> DictConfig:
    """The config with the targets of its teacher, unless the command line chooses others; what changes is told."""
    stored = _read(config)
    if stored is None or stored.settings is None:
        return config
    config, told = config.copy(), [describe(stored)]
    for name, here, value in _differences(config, stored.settings):
        key = f"targets.{name}"
        is_chosen = command.typed(key) or here != OmegaConf.select(command.defaults, key)
        if here == AUTO or not is_chosen:
            OmegaConf.update(config, key, value)
            told.append(f"{key}={value} from the teacher")
    size = OmegaConf.select(config, "transforms.size")
    if size not in (AUTO, stored.settings.page_size):
        told.append(f"transforms.size={size}; the teacher was trained on pages of {stored.settings.page_size}")
    for line in told:
        console.print(Text(line), soft_wrap=True)
    return config


def build_distillation(config: DictConfig) -> Distillation | None:
    """The teacher of a config and the loss beside it; None if there is no teacher."""
    stored = _read(config)
    images = OmegaConf.select(config, "distil.images")
    if stored is None:
        if images is not None:
            raise ConfigError(
                f"distil.images={images}: pages without labels teach nothing without a teacher. Set teacher=best.ckpt",
                setting="distil.images",
                path=str(images),
            )
        return None
    if images is not None and "unlabelled_path" not in (OmegaConf.select(config, "datasets.train_dataset") or {}):
        raise ConfigError(
            f"distil.images={images}: pages without labels are added to a folder of pages, not to shards. "
            "Set data=base",
            setting="distil.images",
            value="shards",
            path=str(images),
        )
    detector, settings = stored.build()
    different = list(_differences(config, settings))
    if different:
        shown = ", ".join(f"targets.{name}={here}" for name, here, _ in different)
        cure = " ".join(f"targets.{name}={value}" for name, _, value in different)
        raise ConfigError(
            f"{stored.source} was trained on other maps than the labels have here ({shown}): the student would learn "
            f"two things at once. Set {cure}",
            setting=f"targets.{different[0][0]}",
            value=different[0][1],
            path=stored.path,
        )
    loss, own = make(config.distil.loss, "distil.loss"), settings.build("normalization", Normalize)
    if config.distil.maps == "batch":
        students: Normalize = make(config.transforms.normalization, "transforms.normalization")
        return Distillation(BatchTeacher(detector, own, students), loss)
    letterbox, outside = settings.build("letterbox", Letterbox), config.targets.thresh_min
    kept_in = (config.cache.folder, config.cache.max_bytes)
    return Distillation(PageTeacher(detector, letterbox, own, outside, *kept_in), loss)


def _read(config: DictConfig) -> StoredDetector | None:
    teacher = config.get("teacher")
    if teacher is None:
        return None
    return read_detector(named_detector(str(teacher)), "teacher")


def _differences(config: DictConfig, settings: DetectorSettings) -> list[tuple[str, object, object]]:
    """Name, value here and value of the teacher, for each setting of the targets that differs."""
    found = ((name, OmegaConf.select(config, f"targets.{name}"), settings.targets.get(name)) for name in SHARED_TARGETS)
    return [(name, here, value) for name, here, value in found if value is not None and here != value]

"""The settings of every job as dataclasses: kinds, bounds and choices, checked as soon as a config is composed.

The YAML files hold the values and explain them. A class here says what a value can be, for every setting whose own
class does not check it: all flags, the numbers of the jobs, the words to choose from. `+KEY=VALUE` adds others.
"""

from __future__ import annotations

from dataclasses import dataclass, is_dataclass
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from omegaconf import DictConfig

from ocr.checks import Range
from ocr.errors import ConfigError, near_names

Auto = Literal["auto"]
Count = Annotated[int, Range(0, whole=True)]
Positive = Annotated[int, Range(1, whole=True)]
Number = Annotated[float, Range(0)]
Executor = Literal["local", "ray"]
OnBadSample = Literal["raise", "skip"]
FLAGS = {"on": True, "yes": True, "true": True, "1": True, "off": False, "no": False, "false": False, "0": False}


@dataclass
class Model:
    channels: Positive
    head_channels: Positive | None
    scale_fusion: bool
    pretrained: bool
    channels_last: bool
    checkpoint_gradients: bool
    freeze_epochs: Count


@dataclass
class Trainer:
    max_epochs: Annotated[int, Range(-1, whole=True)] | Auto | None
    max_steps: Annotated[int, Range(-1, whole=True)]
    num_nodes: Positive
    accumulate_grad_batches: Positive
    limit_train_batches: Number | None
    limit_val_batches: Number | None
    check_val_every_n_epoch: Positive | Auto | None
    log_every_n_steps: Count
    deterministic: bool | Literal["warn"] | None
    use_distributed_sampler: bool
    enable_model_summary: bool


@dataclass
class Checkpoint:
    enable_version_counter: bool
    save_on_train_epoch_end: bool | None


@dataclass
class EarlyStopping:
    patience: Count
    check_on_train_epoch_end: bool | None


@dataclass
class Callbacks:
    best: Checkpoint
    last: Checkpoint
    early_stopping: EarlyStopping


@dataclass
class Logger:
    offline: bool
    log_model: bool | Literal["all"]


@dataclass
class Optimizer:
    _partial_: bool
    lr: Annotated[float, Range(0, above=True)]
    weight_decay: Number
    encoder_lr_factor: Number


@dataclass
class Schedule:
    name: Literal["one_cycle", "cosine", "constant"]
    warmup: Annotated[float, Range(0, 1)]
    final: Annotated[float, Range(0, 1)]


@dataclass
class Boxes:
    use_polygon: bool


@dataclass
class Threads:
    model: Positive | Auto
    opencv: Positive


@dataclass
class Distil:
    maps: Literal["page", "batch"]
    inherit: bool


@dataclass
class Data:
    engine: Literal["threads", "processes"]
    num_workers: Count
    batches_ahead: Positive
    batch_shapes: Positive
    batch_pixels: Positive | None
    cache: Literal["auto", "off"]
    preload_everything: bool


@dataclass
class Dali:
    device: Literal["auto", "cpu", "gpu"]
    suffix: Literal["auto", "dali", "host"]


@dataclass
class Decode:
    scaled: Literal["auto", "off"]
    annotation_frame: Literal["auto", "upright", "raw"]
    max_pixels: Positive


@dataclass
class Loader:
    batch_size: Positive
    shuffle: bool
    num_workers: Count
    prefetch_factor: Positive | None
    persistent_workers: bool
    drop_last: bool


@dataclass
class Split:
    preload_everything: bool
    preload_images: bool
    preload_maps: bool
    prenormalize_images: bool
    cache_transformed_tensors: bool
    use_stored_maps: bool
    on_bad_sample: OnBadSample


@dataclass
class Transforms:
    size: Positive | Auto
    cached_size: Positive | Auto
    normalize: Literal["device", "host"]


@dataclass
class Training:
    """`glyphfeed train`. What others point to comes first: their value is then checked already."""

    seed: Count
    transforms: Transforms
    model: Model
    trainer: Trainer
    callbacks: Callbacks
    logger: dict[str, Logger]
    optimizer: Optimizer
    schedule: Schedule
    boxes: Boxes
    threads: Threads
    cleval: bool
    distil: Distil
    compile_model: bool
    use_dali: bool
    dali: Dali
    on_bad_sample: OnBadSample
    decode: Decode
    use_stored_maps: bool
    data: Data
    dataloaders: dict[str, Loader]
    datasets: dict[str, Split]


@dataclass
class Testing(Training):
    tune: bool


@dataclass
class Inspecting(Training):
    atlas: bool
    picture_side: Annotated[int, Range(64, whole=True)]


@dataclass
class Advising(Training):
    split: Literal["train", "val", "test"]
    step_ms: Number | None
    stages: bool
    all_rows: bool
    compile: bool
    alter: bool
    verify: bool
    apply: bool


@dataclass
class Preprocessing(Training):
    compress: bool
    executor: Executor
    workers: Positive | None


@dataclass
class Converting(Training):
    samples_per_shard: Positive | None
    shuffle_seed: Count | None
    ready: bool
    overwrite: bool
    verify: bool
    executor: Executor
    workers: Positive | None


JOBS: dict[str, type] = {
    "train": Training,
    "test": Testing,
    "inspect": Inspecting,
    "advise": Advising,
    "preprocess_maps": Preprocessing,
    "convert_to_webdataset": Converting,
}


def check_settings(config: DictConfig, settings: type, prefix: str = "") -> None:
    """Turn every value that the dataclass names into its kind; ConfigError if that cannot be done."""
    for name, kind in get_type_hints(settings, include_extras=True).items():
        node: Any = config._get_node(name, validate_access=False)
        if get_origin(kind) is dict:
            below = [(str(key), node._get_node(key)) for key in node] if _is_group(node) else []
            for key, child in below:
                if _is_group(child):
                    check_settings(child, get_args(kind)[1], f"{prefix}{name}.{key}.")
        elif is_dataclass(kind):
            if _is_group(node):
                check_settings(node, kind, f"{prefix}{name}.")  # type: ignore[arg-type]
        elif node is not None and not node._is_missing():
            value = config[name]
            checked = _checked(f"{prefix}{name}", value, kind)
            if checked is not value:
                config[name] = checked


def _is_group(node: Any) -> bool:
    return isinstance(node, DictConfig) and not (node._is_none() or node._is_interpolation())


def _checked(setting: str, value: object, kind: Any) -> object:
    for choice in _choices(kind):
        fits, checked = _fit(value, choice)
        if fits:
            return checked
    words = [word for choice in _choices(kind) if get_origin(choice) is Literal for word in get_args(choice)]
    if len(words) > 1:
        problem = near_names(str(value), words)
        raise ConfigError(f"{setting}={value!r}: {problem}", setting=setting, value=value)
    wanted = " or ".join(filter(None, map(_described, _choices(kind))))
    raise ConfigError(f"{setting}={value!r} must be {wanted}", setting=setting, value=value)


def _choices(kind: Any) -> tuple[Any, ...]:
    return get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)


def _fit(value: object, kind: Any) -> tuple[bool, object]:
    """Whether the value is of this kind, and the value as one."""
    if kind is NoneType:
        return value is None, None
    if kind is bool:
        flag = FLAGS.get(str(value).lower()) if isinstance(value, bool | int | str) else None
        return flag is not None, flag
    if get_origin(kind) is Literal:
        # YAML reads an unquoted `off` as false.
        word = "off" if value is False else value
        return word in get_args(kind), word
    return value in kind.__metadata__[0], value


def _described(kind: Any) -> str:
    if kind is NoneType:
        return "null"
    if kind is bool:
        return "true or false"
    return str(kind.__metadata__[0]) if get_origin(kind) is Annotated else str(get_args(kind)[0])

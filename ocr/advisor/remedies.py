"""What can be tried: changes of a config that it leaves open, each with what is wrong if it helps."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch
from omegaconf import DictConfig, OmegaConf

from ocr.advisor.advice import NOT_KNOWN, SAME, Change, Row

PRELOADS = (
    "preload_maps",
    "preload_images",
    "preload_everything",
    "prenormalize_images",
    "cache_transformed_tensors",
)
AHEAD = 8
"""Batches ahead that are tried; more only take memory."""
SIZES = (0.75, 0.5)
SMALLEST_SIZE = 320
SMALL_BATCH = 4
"""Fewer pages per step leave most devices idle."""
USUAL_BATCH = 8
FINETUNE_STEPS = 400
"""As experiment=finetune has."""
START_HMEAN = "0.891 on 54 receipts and 0.882 on 30 forms before any training"
"""Of the bundled detector, as docs/results.md has it."""
PREPARE = "prepared ahead"
NO_CACHE = "no cache"


def changed(config: DictConfig, overrides: Sequence[str]) -> DictConfig:
    """The config with these KEY=VALUE."""
    made = config.copy()
    OmegaConf.set_struct(made, False)
    for key, value in (override.split("=", 1) for override in overrides):
        OmegaConf.update(made, key, OmegaConf.from_dotlist([f"value={value}"]).value)
    return made


def for_measuring(config: DictConfig, split: str) -> DictConfig:
    """The config without what fills a cache before the first epoch: the pass that is not counted does that."""
    node = config.datasets[f"{split}_dataset"]
    asked = [name for name in PRELOADS if node.get(name)]
    overrides = [f"datasets.{split}_dataset.{name}=false" for name in asked]
    if asked and set(asked) != {"preload_maps"}:
        overrides.append(f"datasets.{split}_dataset.cache=auto")
    return changed(config, overrides)


def key_of(config: DictConfig, setting: str, of_split: str) -> str:
    """The general setting, unless the split has a value of its own.

    >>> config = OmegaConf.create({"a": {"n": 1}, "b": {"n": "${a.n}"}, "c": {"n": 2}})
    >>> key_of(config, "a.n", "b.n"), key_of(config, "a.n", "c.n")
    ('a.n', 'c.n')
    """
    parent, _, name = of_split.rpartition(".")
    node = OmegaConf.select(config, parent)
    return setting if node is None or name not in node or OmegaConf.is_interpolation(node, name) else of_split


# -- the loader


def loader_changes(config: DictConfig, split: str, cores: int, has_gpu: bool) -> list[Change]:
    """Every change of the loader that the config leaves open, those first that can help most."""
    changes = [*_pages(config, split), *_dali(config, has_gpu), *_workers(config, split, cores)]
    return sorted(changes, key=lambda change: change.name == NO_CACHE)


def _workers(config: DictConfig, split: str, cores: int) -> Iterator[Change]:
    loader = config.dataloaders[f"{split}_dataloader"]
    now, engine = int(loader.num_workers), str(config.data.engine)
    key = key_of(config, "data.num_workers", f"dataloaders.{split}_dataloader.num_workers")
    kind = "worker thread" if engine == "threads" else "worker process"
    if engine == "processes":
        cause = "worker processes: they are started for every epoch, and every batch is sent between them"
        most = min(max(now, 1), cores)
        workers = () if most == now else (f"{key}={most}",)
        yield Change(
            f"{_plural(most, 'thread')} instead of processes", ("data.engine=threads", *workers), cause, "workers"
        )
        persistent = f"dataloaders.{split}_dataloader.persistent_workers"
        if now and not loader.persistent_workers:
            yield Change("workers that stay", (f"{persistent}=true",), "workers are started for every epoch", "workers")
    elif _holds_the_interpreter(config, split):
        cause = "transforms that hold the interpreter: threads run them one at a time"
        overrides = ("data.engine=processes", f"dataloaders.{split}_dataloader.persistent_workers=true")
        yield Change(f"{_plural(max(now, 1), 'process')} instead of threads", overrides, cause, "workers")
    for count in sorted({0, 1, cores, 2 * cores} - {now}):
        if count > now:
            cause = "no worker: each batch is made while the model waits" if not now else f"only {_plural(now, kind)}"
        else:
            cause = f"{_plural(now, kind)} on {_plural(cores, 'core')} hold each other up"
        yield Change(_plural(count, kind) if count else "no worker", (f"{key}={count}",), cause, "workers")
    ahead = loader.prefetch_factor if loader.prefetch_factor is not None else config.data.batches_ahead
    if now and ahead < AHEAD:
        key = (
            "data.batches_ahead"
            if loader.prefetch_factor is None
            else f"dataloaders.{split}_dataloader.prefetch_factor"
        )
        cause = f"only {_plural(ahead, 'batch')} ahead, and batches take different times"
        yield Change(f"{AHEAD} batches ahead", (f"{key}={AHEAD}",), cause, PREPARE)
    if config.threads.opencv > 1:
        cause = f"{config.threads.opencv} threads of OpenCV in each worker"
        yield Change("one thread of OpenCV", ("threads.opencv=1",), cause, "OpenCV")


def _holds_the_interpreter(config: DictConfig, split: str) -> bool:
    """Whether a transform is not GlyphFeed's: only those are known to hold the GIL."""
    transform = config.datasets[f"{split}_dataset"].get("transform") or {}
    stages: Any = transform.get("transforms") or []
    return any(not str(stage.get("_target_", "ocr.")).startswith("ocr.") for stage in stages)


def _pages(config: DictConfig, split: str) -> Iterator[Change]:
    node = config.datasets[f"{split}_dataset"]
    if not config.use_dali:
        key = key_of(config, "data.cache", f"datasets.{split}_dataset.cache")
        if node.get("cache") in ("off", False, None):
            yield Change("cache", (f"{key}=auto",), "every page is read and decoded in every epoch", "cache")
        else:
            yield Change(NO_CACHE, (f"{key}=off",), "reading the cache takes longer than decoding", "cache")
    if config.transforms.get("normalize") == "host":
        cause = "pages as floats: four times the bytes, normalised by the workers"
        yield Change("bytes until the device", ("transforms.normalize=device",), cause, "normalize")


def _dali(config: DictConfig, has_gpu: bool) -> Iterator[Change]:
    if config.use_dali:
        yield Change("without DALI", ("use_dali=false",), "DALI decodes every page in every epoch", "cache")
    elif has_gpu:
        yield Change("DALI", ("use_dali=true",), "pages are decoded on the CPU", "cache")


def other_loader_changes(config: DictConfig, split: str) -> list[Change]:
    """Changes of the pages that the loader is faster for, after which the model learns something else."""
    found = []
    size, cached = config.transforms.get("size"), config.transforms.get("cached_size")
    if split == "train" and isinstance(size, int) and isinstance(cached, int) and cached > size:
        cause = f"random stages work on pages of {cached} pixels"
        found.append(
            Change(f"cached pages of {size} pixels", (f"transforms.cached_size={size}",), cause, "size", NOT_KNOWN)
        )
    if config.decode.scaled in ("off", False) and config.datasets[f"{split}_dataset"].get("cache") in ("off", False):
        cause = "JPEGs are decoded at their full size"
        found.append(Change("scaled decoding", ("decode.scaled=auto",), cause, "decode", "pixels differ slightly"))
    return found


# -- the model


def model_changes(config: DictConfig, split: str, cores: int, device: torch.device, compiling: bool) -> list[Change]:
    """Every change of the model's step that the config leaves open."""
    return [*_exact(config, split, cores, device, compiling), *_learning(config, device, split)]


def _exact(config: DictConfig, split: str, cores: int, device: torch.device, compiling: bool) -> Iterator[Change]:
    """Changes after which the model learns the same."""
    layout = "channels last" if config.model.get("channels_last") else "channels first"
    other = "channels first" if layout == "channels last" else "channels last"
    override = f"model.channels_last={str(other == 'channels last').lower()}"
    yield Change(other, (override,), f"{layout} in memory", "layout")
    if config.model.get("checkpoint_gradients"):
        cause = "blocks of the encoder are computed twice"
        yield Change("no gradient checkpoints", ("model.checkpoint_gradients=false",), cause, "kept")
    if compiling and not config.compile_model and not config.model.get("checkpoint_gradients"):
        yield Change("compiled model", ("compile_model=true",), "the model is not compiled", "kept")
    if device.type == "cpu":
        now = cores if config.threads.model == "auto" else int(config.threads.model)
        for count in sorted({max(1, cores // 2), cores} - {now}):
            cause = f"{_plural(now, 'thread')} of the model on {_plural(cores, 'core')}"
            yield Change(f"{_plural(count, 'thread')} for the model", (f"threads.model={count}",), cause, "cores")


def _learning(config: DictConfig, device: torch.device, split: str) -> Iterator[Change]:
    """Changes after which it learns something else."""
    same = NOT_KNOWN if split == "train" else SAME
    if device.type == "cuda" and str(config.trainer.precision).startswith("32"):
        yield Change("bf16", ("trainer.precision=bf16-mixed",), "float32", "precision", NOT_KNOWN)
    size = config.transforms.get("size")
    for factor in SIZES if isinstance(size, int) else ():
        smaller = int(factor * size) // 32 * 32
        if smaller >= SMALLEST_SIZE:
            overrides = (f"transforms.size={smaller}",)
            yield Change(f"pages of {smaller} pixels", overrides, f"pages of {size} pixels", "size", NOT_KNOWN)
    batch = int(config.dataloaders[f"{split}_dataloader"].batch_size)
    larger = USUAL_BATCH if batch < SMALL_BATCH else 2 * batch if device.type == "cuda" else 0
    if larger:
        overrides = (f"dataloaders.{split}_dataloader.batch_size={larger}",)
        yield Change(f"{larger} pages per step", overrides, f"only {_plural(batch, 'page')} per step", "batch", same)


def step_cause(pages: float) -> str:
    """What is wrong with a step of so many pages.

    >>> step_cause(1.0), step_cause(16.0)
    ('only 1 page per step', '')
    """
    return f"only {_plural(round(pages), 'page')} per step" if pages < SMALL_BATCH else ""


def shorter_run(config: DictConfig, steps: int, epoch_seconds: float) -> Row | None:
    """Starting with the bundled detector: fewer pages are seen, so this is computed, and never ranked first."""
    epochs = config.trainer.get("max_epochs")
    chosen = any(config.get(name) is not None for name in ("resume", "checkpoint_path", "weights"))
    if chosen or not isinstance(epochs, int) or epochs * steps <= FINETUNE_STEPS:
        return None
    hmean = f"{START_HMEAN}; {FINETUNE_STEPS} steps instead of {epochs * steps}, each epoch takes the same"
    change = Change("start with the bundled detector", ("weights=glyphfeed",), "random weights", "weights", hmean)
    return Row(change, epoch_seconds, 1.0, "computed")


def combined(rows: Sequence[Row]) -> Change | None:
    """The best change of each setting, all together; None if there are not two."""
    best: dict[str, Row] = {}
    for row in sorted(rows, key=lambda row: row.gain):
        best[row.change.setting] = row
    if any(override.endswith("num_workers=0") for row in best.values() for override in row.change.overrides):
        best.pop(PREPARE, None)  # Nothing is ahead without workers.
    if len(best) < 2:
        return None
    together = sorted(best.values(), key=lambda row: -row.gain)
    overrides = dict(text.split("=", 1) for row in reversed(together) for text in row.change.overrides)
    names = " + ".join(row.change.name for row in together)
    return replace(
        together[0].change,
        name=names,
        overrides=tuple(f"{key}={value}" for key, value in overrides.items()),
        setting="",
    )


def _plural(count: int, word: str) -> str:
    """A number and its word.

    >>> _plural(1, "batch"), _plural(2, "batch"), _plural(2, "core"), _plural(3, "worker process")
    ('1 batch', '2 batches', '2 cores', '3 worker processes')
    """
    ending = "es" if word.endswith(("ch", "ss")) else "s"
    return f"{count} {word}{ending * (count != 1)}"

"""`python scripts/preprocess_maps.py`: the stored maps of the splits of a config."""

from __future__ import annotations

from omegaconf import DictConfig, ListConfig
from rich.console import Console

from ocr.datasets.build import build_dataset
from ocr.errors import ConfigError
from ocr.jobs.run import run_job
from ocr.tools.executor import check_executor, started
from ocr.tools.preprocess import preprocess_maps, print_summaries


def preprocess(config: DictConfig, console: Console) -> int:
    """Write the maps of every split; the exit status, 1 if a page could not be read."""
    check_executor(config.executor, config.workers)
    datasets = {split: build_dataset(config, split) for split in listed_splits(config)}
    with started(config.executor, config.workers):
        summaries = [
            preprocess_maps(dataset, split, config.workers, compress=config.compress, executor=config.executor)
            for split, dataset in datasets.items()
        ]
    print_summaries(summaries, console)
    return int(any(summary.failed for summary in summaries))


def listed_splits(config: DictConfig) -> list[str]:
    """The names in `splits`."""
    splits = list(config.splits) if isinstance(config.splits, ListConfig) else []
    if not splits:
        raise ConfigError(
            f"splits={config.splits} is not a list of splits. Set one: splits=[train,val]",
            setting="splits",
            value=config.splits,
        )
    return splits


def main() -> None:
    """Interrupted, the same command continues where it stopped."""
    run_job(
        "preprocess_maps",
        preprocess,
        "interrupted: every map written so far is complete; the same command writes the rest",
    )


if __name__ == "__main__":
    main()

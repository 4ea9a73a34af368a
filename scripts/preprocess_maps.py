"""Write the maps of every page beside its images: <images>_maps/<stem>.npz.

    python scripts/preprocess_maps.py                          # the demo's data
    python scripts/preprocess_maps.py dataset_base_path=DIR    # DIR/images/<split>/, DIR/jsons/<split>.json
    python scripts/preprocess_maps.py dataset_base_path=DIR splits=[val] transforms.size=1024
    python scripts/preprocess_maps.py engine=ray               # the cluster at $RAY_ADDRESS; without one, Ray here

Interrupted, it goes on where it stopped; maps that still fit their page are left alone.
"""

import sys
from pathlib import Path

import hydra
from omegaconf import DictConfig, ListConfig
from rich.console import Console
from rich.markup import escape

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from ocr.datasets.build import build_dataset
from ocr.errors import ConfigError, GlyphFeedError
from ocr.tools.engine import check_engine, started
from ocr.tools.preprocess import preprocess_maps, print_summaries


@hydra.main(version_base="1.3", config_path="../configs", config_name="preprocess_maps")
def main(config: DictConfig) -> None:
    try:
        splits = list(config.splits) if isinstance(config.splits, ListConfig) else []
        if not splits:
            raise ConfigError(f"splits={config.splits} names no split. Give a list: splits=[train,val]")
        check_engine(config.engine, config.workers)
        datasets = {split: build_dataset(config, split) for split in splits}
        with started(config.engine, config.workers):
            summaries = [
                preprocess_maps(dataset, split, config.workers, compress=config.compress, engine=config.engine)
                for split, dataset in datasets.items()
            ]
    except (GlyphFeedError, OSError) as error:
        Console(stderr=True).print(f"[red]error:[/] {escape(str(error))}", highlight=False, soft_wrap=True)
        sys.exit(1)
    except KeyboardInterrupt:
        print("interrupted: every map written so far is whole; the same command goes on with the rest")
        sys.exit(130)
    print_summaries(summaries, Console())
    sys.exit(1 if any(summary.failed for summary in summaries) else 0)


if __name__ == "__main__":
    main()

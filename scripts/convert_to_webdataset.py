"""Write the splits of a dataset as tar shards: <split>-000000.tar ... and <split>-index.json.

    python scripts/convert_to_webdataset.py                                 # the demo's data, to data/demo/shards
    python scripts/convert_to_webdataset.py dataset_base_path=DIR out=DST   # DIR/images/<split>/ ...
    python scripts/convert_to_webdataset.py dataset_base_path=DIR out=DST splits=[val] ready=true

Interrupted, it goes on where it stopped; shards that are still what their source gives are left alone.
"""

import sys
from dataclasses import fields
from pathlib import Path

import hydra
from omegaconf import DictConfig, ListConfig
from rich.console import Console
from rich.markup import escape

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from ocr.datasets import OCRDataset
from ocr.datasets.build import build_dataset
from ocr.errors import ConfigError, GlyphFeedError
from ocr.tools.convert.report import INTERRUPTED, convert
from ocr.tools.convert.settings import ConvertSettings


def open_splits(config: DictConfig) -> dict[str, OCRDataset]:
    splits = list(config.splits) if isinstance(config.splits, ListConfig) else []
    if not splits:
        raise ConfigError(f"splits={config.splits} names no split. Give a list: splits=[train,val]")
    datasets = {split: build_dataset(config, split) for split in splits}
    for split, dataset in datasets.items():
        if not isinstance(dataset, OCRDataset):
            raise ConfigError(f"datasets.{split}_dataset is no folder of pages: set data=base")
    return datasets


@hydra.main(version_base="1.3", config_path="../configs", config_name="convert_to_webdataset")
def main(config: DictConfig) -> None:
    try:
        settings = ConvertSettings(**{field.name: config[field.name] for field in fields(ConvertSettings)})
        sys.exit(convert(open_splits(config), config.out, settings))
    except (GlyphFeedError, OSError) as error:
        Console(stderr=True).print(f"[red]error:[/] {escape(str(error))}", highlight=False, soft_wrap=True)
        sys.exit(2)
    except KeyboardInterrupt:
        print(INTERRUPTED)
        sys.exit(130)


if __name__ == "__main__":
    main()

"""Train a text detector.

python runners/train.py dataset_base_path=DIR
python runners/train.py model=lite trainer.max_epochs=5 trainer.precision=bf16-mixed
python runners/train.py resume=outputs/DAY/TIME/checkpoints/last.ckpt
"""

import sys
from pathlib import Path

import hydra
from omegaconf import DictConfig

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from ocr.jobs.run import run


@hydra.main(version_base="1.3", config_path="../configs", config_name="train")
def main(config: DictConfig) -> None:
    run("train", config)


if __name__ == "__main__":
    main()

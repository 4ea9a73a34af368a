"""Score a checkpoint.

python runners/test.py checkpoint_path=outputs/DAY/TIME/checkpoints/best.ckpt dataset_base_path=DIR
"""

import sys
from pathlib import Path

import hydra
from omegaconf import DictConfig

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from ocr.jobs.run import run


@hydra.main(version_base="1.3", config_path="../configs", config_name="test")
def main(config: DictConfig) -> None:
    run("test", config)


if __name__ == "__main__":
    main()

"""Find the best thresh, box_thresh and unclip_ratio of a checkpoint.

python runners/sweep.py checkpoint_path=outputs/DAY/TIME/checkpoints/best.ckpt dataset_base_path=DIR
"""

import sys
from pathlib import Path

import hydra
from omegaconf import DictConfig

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from ocr.jobs.run import run


@hydra.main(version_base="1.3", config_path="../configs", config_name="sweep")
def main(config: DictConfig) -> None:
    run("sweep", config)


if __name__ == "__main__":
    main()

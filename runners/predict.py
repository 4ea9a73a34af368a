"""Find the text of a folder of images: JSON, CSV and drawn pages.

python runners/predict.py checkpoint_path=.../best.ckpt images=FOLDER out=predictions
"""

import sys
from pathlib import Path

import hydra
from omegaconf import DictConfig

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from ocr.jobs.run import run


@hydra.main(version_base="1.3", config_path="../configs", config_name="predict")
def main(config: DictConfig) -> None:
    run("predict", config)


if __name__ == "__main__":
    main()

"""The config of `glyphfeed train` with your own settings, composed and run in Python.

python examples/own_config.py DIR OUT [KEY=VALUE...]
"""

import sys

from omegaconf import OmegaConf
from rich.console import Console

from ocr import OCRDataModule
from ocr.jobs.compose import compose_training
from ocr.jobs.train import train

# The same words as on the command line.
SETTINGS = ["model=lite", "transforms.size=512", "targets.shrink_ratio=0.6", "trainer.max_epochs=5"]
# Whatever is long is easier to write as a value: our stages, or any Albumentations transform, by their class.
AUGMENTATION = [
    "${transforms.letterbox}",
    {"_target_": "ocr.pipeline.suffix.RandomRotate", "degrees": 5},
    {"_target_": "ocr.pipeline.suffix.ColourJitter", "p": 0.5},
    "${transforms.normalization}",
]


def main() -> None:
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    data, out, *overrides = sys.argv[1:]
    config = compose_training([f"dataset_base_path={data}", f"output_dir={out}", *SETTINGS, *overrides])
    OmegaConf.update(config, "transforms.train_transform.transforms", AUGMENTATION, merge=False)
    print(OCRDataModule(config).dataset("train"))  # the path of a page, with the cut
    scores = train(config, Console())
    print(f"H-mean {scores['val/hmean']:.3f}: {out}/checkpoints/best.ckpt")


if __name__ == "__main__":
    main()

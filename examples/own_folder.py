"""Your own folder of pages to a detector.

python examples/own_folder.py DIR detector.pt --epochs 20     # DIR/images/{train,val}/, DIR/jsons/{train,val}.json
"""

import argparse
from functools import partial
from pathlib import Path

import lightning
import torch

from ocr import DBTransforms, OCRDataModule, OCRDataset, TextDetector
from ocr.evaluation import BoxesFromMap
from ocr.lightning_modules.ocr_pl import OCRPLModule
from ocr.models import DBLoss
from ocr.pipeline.device import Normalize
from ocr.pipeline.prefix import Letterbox
from ocr.pipeline.suffix import ColourJitter, RandomRotate, TextAwareCrop


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--size", type=int, default=640, help="longest side of a page, in pixels")
    arguments = parser.parse_args()

    def open_split(split: str, *random_stages: object) -> OCRDataset:
        stages = [Letterbox(arguments.size), *random_stages, Normalize()]
        return OCRDataset(
            arguments.data / "images" / split,
            arguments.data / "jsons" / f"{split}.json",
            DBTransforms(stages, normalize="device"),
            cache="auto",
            on_bad_sample="skip",
        )

    train, val = open_split("train", TextAwareCrop(), RandomRotate(10), ColourJitter()), open_split("val")
    print(train)
    detector = TextDetector("mobilenetv3_small_050", channels=64)
    module = OCRPLModule(detector, DBLoss(), BoxesFromMap(), partial(torch.optim.AdamW, lr=2e-3))
    trainer = lightning.Trainer(max_epochs=arguments.epochs, devices=1, logger=False, enable_checkpointing=False)
    trainer.fit(module, OCRDataModule(train=train, val=val, batch_size=8))
    print(f"H-mean on {len(val)} pages: {float(trainer.callback_metrics['val/hmean']):.3f}")
    torch.save({"architecture": detector.architecture, "weights": detector.state_dict()}, arguments.out)
    print(f"written: {arguments.out}")


if __name__ == "__main__":
    main()

"""`glyphfeed init`: a small project with the user's own settings."""

from __future__ import annotations

from pathlib import Path

from ocr.atomic import replacing
from ocr.errors import ConfigError

README = """\
# A text detector

`configs/` holds the settings of this project. It comes before the configs that GlyphFeed brings, whenever `ocr` runs
in this folder.

    glyphfeed synth data/demo                     # synthetic receipts to try it on; or put your own pages into data/
    glyphfeed doctor data/demo                    # lists what is wrong with the pages
    glyphfeed train experiment=mine               # writes outputs/DAY/TIME/checkpoints/best.ckpt
    glyphfeed test checkpoint_path=outputs/DAY/TIME/checkpoints/best.ckpt
    glyphfeed predict outputs/DAY/TIME/checkpoints/best.ckpt FOLDER

Your own pages: DIR/images/train/, DIR/images/val/, DIR/jsons/train.json and DIR/jsons/val.json, then
`dataset_base_path=DIR` on the command line or in `configs/experiment/mine.yaml`.

    glyphfeed train experiment=mine --cfg job     # shows all settings
    glyphfeed advise experiment=mine apply=true   # measures what would be faster, and writes configs/data/tuned.yaml
    glyphfeed train experiment=mine data=tuned    # uses it

Any file of the package's configs can be replaced by one of the same name here, such as `configs/transforms/base.yaml`.
"""
EXPERIMENT = """\
# @package _global_
# Settings of this project: glyphfeed train experiment=mine. Every setting of `--cfg job` can stand here.
defaults:
  - override /model: lite             # lite: for a CPU; base, resnet50 and dbnetpp: for a GPU

dataset_base_path: data/demo          # DIR/images/<split>/ and DIR/jsons/<split>.json

transforms:
  size: 640                           # side of the square that the model sees, in pixels; small text needs more

dataloaders:
  train_dataloader:
    batch_size: 8                     # pages per step
  val_dataloader:
    batch_size: 8                     # pages per step

optimizer:
  lr: 0.002                           # peak of the learning rate

trainer:
  max_epochs: 20                      # passes over the training pages
"""
FILES = {"configs/experiment/mine.yaml": EXPERIMENT, "README.md": README}


def write_project(folder: Path) -> list[Path]:
    """Write the files of a project; an error, and nothing written, if one of them exists."""
    files = {folder / name: text for name, text in FILES.items()}
    if existing := [file for file in files if file.exists()]:
        raise ConfigError(
            f"{existing[0]} exists, and would be replaced. Remove it, or choose another folder", path=existing[0]
        )
    for file, text in files.items():
        with replacing(file) as stream:
            stream.write(text.encode())
    return list(files)

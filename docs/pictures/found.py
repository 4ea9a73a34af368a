"""Draw docs/pictures/found.png: pages side by side with the boxes that `glyphfeed predict` wrote for them.

python docs/pictures/found.py predictions data/demo/images/val docs/pictures/found.png 0011 0021 0005
"""

import json
import sys
from pathlib import Path

from PIL import Image, ImageDraw, ImageOps

HEIGHT, GAP, COLOURS = 620, 8, 96


def draw(page: Image.Image, words: dict) -> Image.Image:
    """The page at twice the final size with its boxes, then halved: smooth lines."""
    scale = 2 * HEIGHT / page.height
    large = page.resize((round(page.width * scale), 2 * HEIGHT), Image.Resampling.LANCZOS)
    pen = ImageDraw.Draw(large)
    for word in words.values():
        outline = [(x * scale, y * scale) for x, y in word["points"]]
        pen.line([*outline, outline[0]], fill=(230, 30, 30), width=3, joint="curve")
    return large.resize((large.width // 2, HEIGHT), Image.Resampling.LANCZOS)


def main() -> None:
    if len(sys.argv) < 5:
        sys.exit(__doc__)
    predictions, images, target, *stems = sys.argv[1:]
    found = json.loads((Path(predictions) / "predictions.json").read_text())["images"]
    names = [next(name for name in found if Path(name).stem == stem) for stem in stems]
    pages = [ImageOps.exif_transpose(Image.open(Path(images) / name)).convert("RGB") for name in names]
    drawn = [draw(page, found[name]["words"]) for page, name in zip(pages, names, strict=True)]
    picture = Image.new("RGB", (sum(page.width + GAP for page in drawn) - GAP, HEIGHT), "white")
    left = 0
    for page in drawn:
        picture.paste(page, (left, 0))
        left += page.width + GAP
    picture.quantize(COLOURS, dither=Image.Dither.NONE).save(target, optimize=True)


if __name__ == "__main__":
    main()

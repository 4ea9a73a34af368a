"""Draw docs/pictures/kinds.png: a synthetic page of each kind with its labels; blue ones are regions to ignore.

python docs/pictures/kinds.py docs/pictures/kinds.png receipt:5 form:1 letter:1 invoice:6
"""

import sys

from PIL import Image, ImageDraw

from ocr.tools.synth import SynthPage, render_page

HEIGHT, GAP, COLOURS = 600, 8, 48
UNITS = {"receipt": "lines"}


def draw(page: SynthPage) -> Image.Image:
    """The page at twice the final size with its labels, then halved: smooth lines."""
    scale = 2 * HEIGHT / page.image_hwc.shape[0]
    large = Image.fromarray(page.image_hwc).resize((round(page.image_hwc.shape[1] * scale), 2 * HEIGHT))
    pen = ImageDraw.Draw(large)
    for word in page.words:
        outline = [(x * scale, y * scale) for x, y in word.points]
        pen.line([*outline, outline[0]], fill=(0, 40, 255) if word.ignore else (230, 30, 30), width=2)
    return large.resize((large.width // 2, HEIGHT), Image.Resampling.LANCZOS)


def main() -> None:
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    target, *names = sys.argv[1:]
    drawn = []
    for name in names:
        kind, index = name.split(":")
        units = UNITS.get(kind, "words")
        drawn.append(draw(render_page(0, int(index), megapixels=(1.0, 1.0), kind=kind, units=units)))
    picture = Image.new("RGB", (sum(page.width + GAP for page in drawn) - GAP, HEIGHT), "white")
    left = 0
    for page in drawn:
        picture.paste(page, (left, 0))
        left += page.width + GAP
    # An octree keeps the rare blue, which the median cut turns to gray.
    picture.quantize(COLOURS, Image.Quantize.FASTOCTREE, dither=Image.Dither.NONE).save(target, optimize=True)


if __name__ == "__main__":
    main()

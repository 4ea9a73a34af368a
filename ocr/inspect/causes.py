"""Why a word was missed and why a box is false: one rule per cause, the first that applies counts.

A rule takes the evidence and returns what it saw, in a few words, or None. Rules that see what happened (a box over two
words, a score under a threshold) come before those that suspect a reason (small, faint). Limits that are lengths are
pixels of the map, those of contrast gray levels.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ocr.inspect.evidence import MOSTLY, FalseBox, MissedWord, Sides

OTHER = "other"

# The limits were set on 1,475 lines of 28 real receipts at 960 (tf_efficientnet_lite0, H-mean 0.930). Of text under 7
# pixels 3 of 15 were found, of 7 to 12 pixels 77 %, from 14 on 93 %.
SMALL_HEIGHT = 9.0
# Of text under 45 none of 2 was found, of 45 to 60 8 of 11, above 80 91 %.
FAINT_CONTRAST = 45.0
# An outline that is cut loses at least this share, or ends within a pixel of the edge.
CUT_SHARE, CUT_DISTANCE = 0.1, 1.0
# Boxes with less overlap touch a word by accident.
TOUCHING_IOU = 0.1
STEEP_ANGLE = 20.0
HUGE, TALL = 2.5, 2.2
"""Heights, over the median of the page, of display text and of what is no text at all."""
# Of boxes with a lower score 82 % were right, of the others 97 %.
SURE_SCORE = 0.7
TEXT_STROKES = (0.4, 6.0)
TEXT_INK = (0.06, 0.5)
# Bars of a code are uniform from top to bottom, and there are many of them.
BAR_UNIFORMITY, BAR_STROKES = 0.85, 1.5
THIN_ASPECT, LINE_SHARE = 12.0, 0.6

SIDE_NAMES = ("left", "top", "right", "bottom")


def cut_by_page(word: MissedWord) -> str | None:
    """The page ends within the word."""
    if word.outside >= CUT_SHARE:
        return f"{word.outside:.0%} of it is beyond the page"
    return "it touches the edge of the page" if word.edge_distance < CUT_DISTANCE else None


def masked(word: MissedWord) -> str | None:
    """An ignored region covers it, or the targets leave it out of the loss."""
    if word.under_ignored >= MOSTLY:
        return f"an ignored region covers {word.under_ignored:.0%} of it"
    if word.left_out:
        return f"the targets leave text of {word.shape.height:.1f} px out of the loss"
    return None


def labelled_twice(word: MissedWord) -> str | None:
    """Two labels have the same place, and one box can match one of them only."""
    return "another label has the same place" if word.has_twin else None


def merged(word: MissedWord) -> str | None:
    """One box covers it together with other words."""
    if word.merged_with < 1:
        return None
    others = "another word" if word.merged_with == 1 else f"{word.merged_with} other words"
    apart = f"; apart at thresh={word.apart_at:g}" if word.apart_at is not None else ""
    return f"one box with {others}{apart}"


def split(word: MissedWord) -> str | None:
    """Several boxes are pieces of it."""
    if word.pieces < 2 or word.pieces_cover < MOSTLY:
        return None
    return f"{word.pieces} boxes cover {min(word.pieces_cover, 1):.0%} of it"


def under_threshold(word: MissedWord) -> str | None:
    """A box matches it with another threshold."""
    if word.loose is None:
        return None
    if word.loose.setting in ("box_thresh", "max_candidates"):
        return f"{word.loose.setting} removes its box, which has a score of {word.loose.score:.2f}"
    return f"{word.loose.setting} hides it: found with {word.loose.value:g}, at a score of {word.loose.score:.2f}"


def badly_sized(word: MissedWord) -> str | None:
    """A box is at its place, and overlaps it too little."""
    if word.iou < TOUCHING_IOU:
        return None
    return f"IoU {word.iou:.2f}: the box {describe_sides(word.sides)}"


def too_small(word: MissedWord) -> str | None:
    """At this size of the page there is not enough of it to see."""
    height = word.shape.height
    return f"{height:.1f} px at this size" if height < SMALL_HEIGHT else None


def faint(word: MissedWord) -> str | None:
    """Print and paper are alike."""
    contrast = word.shape.contrast
    return f"contrast {contrast:.0f} of 255" if contrast < FAINT_CONTRAST else None


def unusual(word: MissedWord) -> str | None:
    """Text of a kind that pages have little of: steep, light on dark, or far larger than the rest."""
    shape = word.shape
    if abs(shape.angle) > STEEP_ANGLE and shape.aspect > 2:
        return f"at an angle of {shape.angle:.0f} degrees"
    if shape.is_light:
        return "light print on a dark ground"
    return f"{word.relative_height:.1f} x as high as the rest" if word.relative_height > HUGE else None


def one_character(word: MissedWord) -> str | None:
    """A lone character: nothing beside it says that it is text."""
    shape = word.shape
    return f"{shape.length:.0f} x {shape.height:.0f} px stand alone" if shape.aspect < 2 else None


def box_over_words(box: FalseBox) -> str | None:
    """It covers several words, none of them well enough."""
    return f"covers {box.words_covered} words" if box.words_covered > 1 else None


def piece_of_word(box: FalseBox) -> str | None:
    """Other boxes are pieces of the same word."""
    if box.inside < MOSTLY or box.covers >= MOSTLY or not (box.word_found or box.others_inside):
        return None
    return f"covers {box.covers:.0%} of a word that other boxes {'find' if box.word_found else 'cover too'}"


def duplicate(box: FalseBox) -> str | None:
    """Another box has found the word that this one is over."""
    if not box.word_found or max(box.inside, box.covers) < MOSTLY:
        return None
    return f"another box has found the word under it (IoU {box.iou:.2f})"


def box_badly_sized(box: FalseBox) -> str | None:
    """It is at the place of a missed word, and overlaps it too little."""
    if box.word_found or box.iou < TOUCHING_IOU:
        return None
    return f"IoU {box.iou:.2f} with a missed word: it {describe_sides(box.sides)}"


def logo_or_code(box: FalseBox) -> str | None:
    """Bars of a code, or a dense figure that is far taller than the text."""
    texture, shape = box.texture, box.shape
    if texture.uniform_columns > BAR_UNIFORMITY and texture.strokes > BAR_STROKES and shape.height > SMALL_HEIGHT:
        return "bars, uniform from top to bottom"
    return f"{box.relative_height:.1f} x as high as the text" if box.relative_height > TALL else None


def rule_or_border(box: FalseBox) -> str | None:
    """A straight line runs along it, or it lies along the edge of the page."""
    texture, shape = box.texture, box.shape
    if shape.aspect > 2 and texture.longest_line > LINE_SHARE:
        return f"a line along {texture.longest_line:.0%} of it"
    if shape.aspect > THIN_ASPECT and box.edge_distance < CUT_DISTANCE:
        return "long and thin at the edge of the page"
    return None


def unlabelled_text(box: FalseBox) -> str | None:
    """The model is sure, there are strokes as of text, and nobody labelled it."""
    texture, shape = box.texture, box.shape
    has_strokes = TEXT_STROKES[0] <= texture.strokes <= TEXT_STROKES[1]
    has_ink = TEXT_INK[0] <= texture.ink <= TEXT_INK[1] and shape.contrast >= FAINT_CONTRAST
    if box.score < SURE_SCORE or not has_strokes or not has_ink:
        return None
    return f"score {box.score:.2f}, {texture.strokes:.1f} strokes per height: text without a label?"


def noise(box: FalseBox) -> str | None:
    """The model is not sure, or there is hardly any print."""
    if box.shape.contrast < FAINT_CONTRAST:
        return f"contrast {box.shape.contrast:.0f} of 255"
    return f"score {box.score:.2f}" if box.score < SURE_SCORE else None


def describe_sides(sides: Sides) -> str:
    """Where a box ends too early or too late, in pixels; the largest differences first."""
    named = sorted(zip(SIDE_NAMES, sides, strict=True), key=lambda side: -abs(side[1]))
    shown = [
        f"{'reaches' if value > 0 else 'ends'} {abs(value):.0f} px {'too far' if value > 0 else 'early'} {name}"
        for name, value in named[:2]
        if abs(value) >= 1
    ]
    return " and ".join(shown) or "has another outline"


MissedRule = Callable[[MissedWord], str | None]
FalseRule = Callable[[FalseBox], str | None]

MISSED_RULES: Mapping[str, MissedRule] = {
    "cut by the page": cut_by_page,
    "masked": masked,
    "labelled twice": labelled_twice,
    "merged": merged,
    "split": split,
    "under a threshold": under_threshold,
    "badly sized": badly_sized,
    "too small": too_small,
    "faint": faint,
    "unusual": unusual,
    "one character": one_character,
}
FALSE_RULES: Mapping[str, FalseRule] = {
    "merged": box_over_words,
    "split": piece_of_word,
    "duplicate": duplicate,
    "badly sized": box_badly_sized,
    "logo or code": logo_or_code,
    "rule or border": rule_or_border,
    "unlabelled text": unlabelled_text,
    "noise": noise,
}
CAUSES = tuple(dict.fromkeys([*MISSED_RULES, *FALSE_RULES, OTHER]))


def cause_of_miss(word: MissedWord) -> tuple[str, str]:
    """The cause of a missed word, and what was seen."""
    seen = ((cause, rule(word)) for cause, rule in MISSED_RULES.items())
    nothing = f"nothing found, though it is {word.shape.height:.0f} px high; the map is {word.probability:.2f} there"
    return next(((cause, detail) for cause, detail in seen if detail is not None), (OTHER, nothing))


def cause_of_false(box: FalseBox) -> tuple[str, str]:
    """The cause of a false box, and what was seen."""
    seen = ((cause, rule(box)) for cause, rule in FALSE_RULES.items())
    nothing = f"score {box.score:.2f}, {box.texture.strokes:.1f} strokes per height"
    return next(((cause, detail) for cause, detail in seen if detail is not None), (OTHER, nothing))

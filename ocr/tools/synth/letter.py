"""A letter or memorandum: letterhead, addresses, paragraphs, a signature."""

from __future__ import annotations

from ocr.tools.synth import shapes, vocabulary
from ocr.tools.synth.layout import Align
from ocr.tools.synth.printer import Type
from ocr.tools.synth.sheet import Sheet
from ocr.tools.synth.vocabulary import chance, pick

_GREETINGS = ("Dear Sir or Madam:", "Dear Mr. {0}:", "Dear {0},", "Gentlemen:", "To whom it may concern,")
_CLOSINGS = ("Sincerely,", "Yours faithfully,", "Very truly yours,", "Kind regards,", "Best wishes,")


def write_letter(sheet: Sheet) -> None:
    """One page from the letterhead to the copies; it can end anywhere on the sheet."""
    rng = sheet.rng
    margin = float(rng.uniform(0.07, 0.15)) * sheet.width
    left, right = margin, sheet.width - margin
    body = sheet.kind(sheet.faces.typed, float(rng.uniform(0.85, 1.1)))
    pitch = body.size / sheet.em * float(rng.uniform(1.15, 1.9)) * sheet.tall
    y = print_letterhead(sheet, left, right, float(rng.uniform(2.5, 6.0)))
    y = _memo_head(sheet, left, y, body) if chance(rng, 0.3) else _letter_head(sheet, left, right, y, body, pitch)
    y = _body(sheet, left, right, y, body, pitch)
    if y < sheet.height - 12:
        y = _close(sheet, left, y, body, pitch)
    _footer(sheet, left, right)


def print_letterhead(sheet: Sheet, left: float, right: float, y: float) -> float:
    """The firm's name and address, to any side, over a rule in some cases."""
    rng = sheet.rng
    align: Align = ("left", "center", "right")[int(rng.integers(3))]
    x = {"left": left, "center": (left + right) / 2, "right": right}[align]
    kind = sheet.kind(sheet.faces.headline, float(rng.uniform(1.2, 2.6)), spaced=chance(rng, 0.05))
    if chance(rng, 0.4):
        emblem = shapes.draw_emblem(rng, round(sheet.em * float(rng.uniform(2.5, 5))))
        wide, high = (side / sheet.em for side in emblem.shape[::-1])
        sheet.ignored(emblem, {"left": left, "center": x - wide / 2, "right": right - wide}[align], y - 1.5)
        y += high + kind.size / sheet.em - 1
    name = vocabulary.firm(rng)
    sheet.text(sheet.fit(name.upper() if chance(rng, 0.4) else name, kind, right - left), x, y, kind, align)
    y += 0.35 * kind.size / sheet.em * sheet.tall
    small = sheet.kind(sheet.faces.printed, float(rng.uniform(0.6, 0.9)))
    lines = [*vocabulary.address(rng), f"Tel. {vocabulary.phone(rng)}", f"www.{pick(rng, vocabulary.PROSE)}.example"]
    lines = [", ".join(lines[:2]), "  ".join(lines[2:])] if chance(rng, 0.4) else lines[: int(rng.integers(2, 5))]
    for line in lines:
        y += small.size / sheet.em * 1.35 * sheet.tall
        sheet.next_block()
        sheet.text(line, x, y, small, align)
    if chance(rng, 0.4):
        sheet.drawn_rule(left, y + 0.8, right)
    sheet.next_block()
    return y + float(rng.uniform(2.0, 5.0))


def _letter_head(sheet: Sheet, left: float, right: float, y: float, kind: Type, pitch: float) -> float:
    rng = sheet.rng
    to_right = chance(rng, 0.4)
    sheet.text(vocabulary.long_date(rng), right if to_right else left, y, kind, "right" if to_right else "left")
    y += pitch * float(rng.uniform(1.5, 3.0))
    name = vocabulary.person(rng)
    for line in (name, vocabulary.firm(rng), *vocabulary.address(rng)):
        sheet.text(line, left, y, kind)
        y += pitch
    y += pitch
    if chance(rng, 0.5):
        bold = sheet.kind(sheet.faces.bold, kind.size / sheet.em)
        subject = vocabulary.phrase(rng, int(rng.integers(3, 8)))
        sheet.text(sheet.fit(f"Re: {subject}", bold, right - left), left, y, bold)
        y += 2 * pitch
    sheet.text(pick(rng, _GREETINGS).format(name.split()[-1]), left, y, kind)
    return y + 2 * pitch


def _memo_head(sheet: Sheet, left: float, y: float, kind: Type) -> float:
    rng = sheet.rng
    bold = sheet.kind(sheet.faces.bold, kind.size / sheet.em)
    sheet.text(pick(rng, ("MEMORANDUM", "Memo", "INTER-OFFICE CORRESPONDENCE")), left, y, sheet.sized(bold, 1.4))
    tab = left + float(rng.uniform(5, 8))
    subject = vocabulary.phrase(rng, 4)
    makers = {
        "TO": vocabulary.person(rng),
        "FROM": vocabulary.person(rng),
        "DATE": vocabulary.long_date(rng),
        "SUBJECT": subject,
    }
    for name, text in makers.items():
        y += 1.9 * sheet.tall
        sheet.text(f"{name}:", left, y, bold)
        sheet.text(text, tab, y, kind)
    if chance(rng, 0.5):
        sheet.drawn_rule(left, y + 0.9, sheet.width - left)
    return y + 3.0


def _body(sheet: Sheet, left: float, right: float, y: float, kind: Type, pitch: float) -> float:
    rng = sheet.rng
    justify, indent = chance(rng, 0.4), 2.5 if chance(rng, 0.3) else 0.0
    columns = 2 if chance(rng, 0.1) else 1
    width = (right - left) / columns - (columns - 1) * 0.8
    end = max(y + 6 * pitch, sheet.height * (0.92 if chance(rng, 0.5) else float(rng.uniform(0.5, 0.9))))
    lowest = y
    for column in range(columns):
        x, at = left + column * (width + 1.6), y
        sheet.next_block()
        while at < end - 4 * pitch:
            words = vocabulary.prose(rng, int(rng.integers(10, 70)))
            room = int((end - at) / pitch) * max(1, int(width / sheet.width_of("average ", kind)))
            at = _paragraph(sheet, words[: max(4, room)], x, at, width, kind, pitch, indent, justify=justify)
            at += pitch * float(rng.uniform(0.0, 1.0))
        lowest = max(lowest, at)
    sheet.next_block()
    return lowest


def _paragraph(
    sheet: Sheet,
    words: list[str],
    x: float,
    y: float,
    width: float,
    kind: Type,
    pitch: float,
    indent: float,
    *,
    justify: bool,
) -> float:
    if not indent:
        return sheet.paragraph(words, x, y, width, kind, pitch, justify=justify)
    first = sheet.fit(" ".join(words), kind, width - indent).split()
    sheet.text(" ".join(first), x + indent, y, kind)
    return sheet.paragraph(words[len(first) :], x, y + pitch, width, kind, pitch, justify=justify)


def _close(sheet: Sheet, left: float, y: float, kind: Type, pitch: float) -> float:
    rng = sheet.rng
    x = left if chance(rng, 0.6) else sheet.width / 2
    y += pitch
    sheet.text(pick(rng, _CLOSINGS), x, y, kind)
    if chance(rng, 0.75):
        sheet.signature(x, y + 4.0, float(rng.uniform(6, 12)), float(rng.uniform(2.0, 3.2)))
    y += 5.0
    sheet.text(vocabulary.person(rng), x, y, kind)
    sheet.text(pick(rng, ("Manager", "Director", "Secretary", "Vice President")), x, y + pitch, kind)
    if chance(rng, 0.4):
        y += 3 * pitch
        sheet.text(f"cc: {vocabulary.person(rng)}", left, y, sheet.sized(kind, 0.9))
    return y + pitch


def _footer(sheet: Sheet, left: float, right: float) -> None:
    rng = sheet.rng
    small = sheet.kind(sheet.faces.printed, float(rng.uniform(0.55, 0.75)))
    y = sheet.height - float(rng.uniform(0.9, 2.2))
    if chance(rng, 0.35):
        line = f"{vocabulary.firm(rng)}  {', '.join(vocabulary.address(rng))}  {vocabulary.phone(rng)}"
        sheet.text(sheet.fit(line, small, right - left), (left + right) / 2, y, small, "center")
    elif chance(rng, 0.4):
        sheet.text(f"Page {int(rng.integers(1, 9))}", right, y, small, "right")
    elif chance(rng, 0.3):
        number = sheet.kind("DejaVuSerif-Bold.ttf", float(rng.uniform(1.1, 1.6)))
        sheet.text(vocabulary.number(rng, 9), right, y, number, "right")

"""A form: fields, tables, tick boxes and signatures between a title and a file number, as offices keep them."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise

from ocr.tools.synth import shapes, vocabulary
from ocr.tools.synth.printer import Type, print_stamp
from ocr.tools.synth.sheet import Sheet, TableStyle, column_edges, data_rows, print_table
from ocr.tools.synth.vocabulary import chance, pick

# Takes the sheet, the left and right edge and the top in ems; gives the y under what it has printed.
Section = Callable[[Sheet, float, float, float], float]


def write_form(sheet: Sheet) -> None:
    """Fill the sheet from its title down; as on real forms, a part of it often stays bare."""
    rng = sheet.rng
    left = float(rng.uniform(0.05, 0.13)) * sheet.width
    right = sheet.width - float(rng.uniform(0.05, 0.13)) * sheet.width
    bottom = sheet.height * (0.93 if chance(rng, 0.65) else float(rng.uniform(0.55, 0.93)))
    framed = chance(rng, 0.15)
    top = float(rng.uniform(2.5, 9.0))
    y = print_title(sheet, left, right, top)
    shares = rng.dirichlet([1.2] * len(_SECTIONS))
    while y < bottom - 3:
        section = _SECTIONS[int(rng.choice(len(_SECTIONS), p=shares))]
        y = section(sheet, left, right, y) + float(rng.uniform(0.6, 2.6))
        sheet.next_block()
        if chance(rng, 0.12):
            sheet.drawn_rule(left, y - 0.4, right)
            y += 0.8
    if framed:
        sheet.box(left - 1, top - 2.2, right + 1, y, 0.12)
    print_extras(sheet, left, right, y)


def print_title(sheet: Sheet, left: float, right: float, y: float) -> float:
    """Firm and title, centred or not, underlined, spaced or white on a bar."""
    rng = sheet.rng
    center = chance(rng, 0.65)
    if chance(rng, 0.2):
        emblem = shapes.draw_emblem(rng, round(sheet.em * float(rng.uniform(2.5, 5))))
        sheet.ignored(emblem, left if center else right - emblem.shape[1] / sheet.em, y - 1.5)
        y += emblem.shape[0] / sheet.em
    lines = [vocabulary.firm(rng)] if chance(rng, 0.6) else []
    lines += [pick(rng, vocabulary.TITLES)]
    lines += [vocabulary.phrase(rng, 3).title()] if chance(rng, 0.3) else []
    for line in lines:
        size = float(rng.uniform(0.9, 1.9))
        y += size * sheet.tall * float(rng.uniform(0.85, 1.5))
        spaced = chance(rng, 0.06)
        face = pick(rng, (sheet.faces.bold, sheet.faces.bold, sheet.faces.headline, sheet.faces.printed))
        kind = sheet.kind(face, size * (0.7 if spaced else 1.0), spaced=spaced)
        text = sheet.fit(line.upper() if chance(rng, 0.5) else line, kind, right - left)
        half = sheet.width_of(text, kind) / 2
        x = (left + right) / 2 - half if center else left
        white = chance(rng, 0.07)
        if white:
            sheet.bar(left, y - size, right, y + 0.45 * size)
        sheet.text(text, x, y, kind, white=white)
        if not white and chance(rng, 0.2):
            sheet.rule(x, y + 0.28 * size, x + 2 * half, 0.07)
        y += 0.4 * size
        sheet.next_block()
    return y + float(rng.uniform(1.0, 3.0))


def label_kind(sheet: Sheet) -> Type:
    """The type of field names: often smaller than what is filled in."""
    size = float(sheet.rng.choice([0.68, 0.75, 0.9, 1.0, 1.0]))
    return sheet.kind(sheet.faces.bold if chance(sheet.rng, 0.3) else sheet.faces.printed, size)


def hand_size(sheet: Sheet) -> float:
    """Handwriting is larger than print."""
    return float(sheet.rng.uniform(1.4, 2.3))


def fill_in(sheet: Sheet, x: float, y: float, right: float) -> None:
    """A value on a line: typed, or written by hand; or nothing."""
    rng = sheet.rng
    drawn = float(rng.random())
    text = vocabulary.value(rng)
    if drawn < 0.6:
        kind = sheet.kind(sheet.faces.typed)
        fitted = sheet.fit(text, kind, right - x)
        if sheet.width_of(fitted, kind) <= right - x:
            sheet.text(fitted, x, y, kind)
    elif drawn < 0.7:
        sheet.by_hand(text, x, y, hand_size(sheet), right)


def _fields(sheet: Sheet, left: float, right: float, y: float) -> float:
    """Names with colons, values on rules next to them, in one to three columns."""
    rng = sheet.rng
    columns = int(rng.choice([1, 1, 2, 2, 3]))
    kind, pitch = label_kind(sheet), float(rng.uniform(1.3, 2.8)) * sheet.tall
    colon, upper = chance(rng, 0.75), chance(rng, 0.4)
    ruled, leaders = chance(rng, 0.6), chance(rng, 0.1)
    tab = float(rng.uniform(0.25, 0.5)) if chance(rng, 0.5) else 0.0
    step = (right - left) / columns
    y += 0.8
    for _ in range(int(rng.integers(2, 8))):
        if sheet.is_full(y):
            break
        for column in range(columns):
            x0, x1 = left + column * step, left + (column + 1) * step - 1.2
            name = pick(rng, vocabulary.LABELS) + (":" if colon else "")
            name = sheet.fit(name.upper() if upper else name, kind, x1 - x0)
            end = sheet.text(name, x0, y, kind)
            start = max(end + float(rng.uniform(0.3, 1.2)), x0 + tab * (x1 - x0))
            if start > x1 - 2:
                continue
            if leaders:
                sheet.dashes("." * int((x1 - end) / sheet.width_of(".", kind) * 0.9), end + 0.2, y, kind)
            else:
                fill_in(sheet, start + float(rng.uniform(0.1, 1.5)), y - 0.1, x1)
                if ruled:
                    sheet.rule(end + 0.2, y + float(rng.uniform(0.1, 0.3)), x1, 0.06)
        y += pitch
    return y - pitch


def _grid(sheet: Sheet, left: float, right: float, y: float) -> float:
    """Boxes with a small name in the corner and a value under it."""
    rng = sheet.rng
    small = sheet.kind(sheet.faces.printed, float(rng.uniform(0.64, 0.8)))
    height = float(rng.uniform(2.3, 3.4)) * sheet.tall
    upper, thick = chance(rng, 0.6), float(rng.uniform(0.05, 0.14))
    for _ in range(int(rng.integers(1, 6))):
        if sheet.is_full(y + height):
            break
        edges = column_edges(sheet, left, right, int(rng.integers(1, 5)), float(rng.uniform(0.7, 1.8)))
        for x0, x1 in pairwise(edges):
            sheet.next_block()
            name = pick(rng, vocabulary.LABELS)
            sheet.text(sheet.fit(name.upper() if upper else name, small, x1 - x0 - 1), x0 + 0.3, y + 0.8, small)
            fill_in(sheet, x0 + float(rng.uniform(0.4, 1.5)), y + height - 0.4, x1 - 0.3)
            sheet.box(x0, y, x1, y + height, thick)
        y += height
    sheet.next_block()
    return y


def _table(sheet: Sheet, left: float, right: float, y: float) -> float:
    rng = sheet.rng
    columns, style = int(rng.integers(2, 8)), TableStyle.choose(sheet)
    count = min(int(rng.integers(2, 12)), int((sheet.height - y - 5) / style.pitch))
    if count < 1:
        return sheet.height
    edges = column_edges(sheet, left, right, columns, float(rng.uniform(1.0, 3.0)))
    size = float(rng.choice([0.75, 0.9, 1.0]))
    kinds = label_kind(sheet), sheet.kind(sheet.faces.typed, size)
    heads = [pick(rng, vocabulary.COLUMNS) for _ in range(columns)]
    return print_table(sheet, edges, y, heads, data_rows(sheet, count, columns), kinds, style)


def _prose(sheet: Sheet, left: float, right: float, y: float) -> float:
    """A text, typed or printed small; numbered in some cases."""
    rng = sheet.rng
    small = chance(rng, 0.35)
    kind = sheet.kind(sheet.faces.printed, float(rng.uniform(0.65, 0.85))) if small else sheet.kind(sheet.faces.typed)
    pitch = kind.size / sheet.em * float(rng.uniform(1.2, 1.7)) * sheet.tall
    indent = float(rng.uniform(0, 0.3)) * (right - left) if chance(rng, 0.4) else 0.0
    numbered, y = chance(rng, 0.3), y + 0.8
    for item in range(int(rng.integers(1, 4))):
        x = left + indent
        if sheet.is_full(y):
            break
        if numbered:
            x = sheet.text(pick(rng, (f"{item + 1}.", f"{chr(97 + item)})", f"({item + 1})", "-")), x, y, kind) + 0.8
        words = vocabulary.prose(rng, int(rng.integers(6, 45)))
        y = sheet.paragraph(words, x, y, right - x, kind, pitch, justify=chance(rng, 0.15)) + 0.3
    return y - pitch


def _ticks(sheet: Sheet, left: float, right: float, y: float) -> float:
    """A question and boxes to tick, or blanks between brackets."""
    rng = sheet.rng
    kind = label_kind(sheet)
    boxes = chance(rng, 0.7)
    y += 0.8
    for _ in range(int(rng.integers(1, 4))):
        if sheet.is_full(y):
            break
        question = vocabulary.phrase(rng, int(rng.integers(1, 7))) + pick(rng, ("?", ":"))
        x = sheet.text(sheet.fit(question, kind, (right - left) * 0.6), left, y, kind) + 1.5
        for _ in range(int(rng.integers(2, 6))):
            option = pick(rng, vocabulary.OPTIONS)
            if x + sheet.width_of(option, kind) + 2.5 > right:
                break
            ticked = chance(rng, 0.3)
            if boxes:
                x = sheet.tick_box(x, y, float(rng.uniform(0.75, 0.95)), ticked=ticked) + float(rng.uniform(0.25, 0.7))
            else:
                sheet.rule(x, y + 0.1, x + 1.6, 0.06)
                if ticked:
                    sheet.text("X", x + 0.5, y, sheet.kind(sheet.faces.typed))
                x += 1.9
            x = sheet.text(option, x, y, kind) + float(rng.uniform(1.2, 3.0))
        y += float(rng.uniform(1.4, 2.4)) * sheet.tall
    return y - 1.0


def _signatures(sheet: Sheet, left: float, right: float, y: float) -> float:
    """Who approved it: a name, a signature over a line, a date."""
    rng = sheet.rng
    kind, middle = label_kind(sheet), left + (right - left) * float(rng.uniform(0.5, 0.7))
    for _ in range(int(rng.integers(1, 4))):
        y += float(rng.uniform(2.4, 3.6))
        if sheet.is_full(y + 1.2):
            break
        name = pick(rng, ("Approved by", "Signature", "Submitted by", "Authorized", "By", "Prepared by")) + ":"
        x = sheet.text(name, left, y, kind) + 0.4
        if chance(rng, 0.6):
            sheet.signature(x + 0.5, y + 0.4, float(rng.uniform(6, 12)), float(rng.uniform(1.8, 3.2)))
        sheet.rule(x, y + 0.2, middle - 1, 0.06)
        x = sheet.text("Date:" if chance(rng, 0.6) else "DATE", middle, y, kind) + 0.5
        if chance(rng, 0.5):
            sheet.by_hand(vocabulary.date(rng), x, y, hand_size(sheet), right)
        sheet.rule(x, y + 0.2, right, 0.06)
        if chance(rng, 0.4):
            y += 1.2 * sheet.tall
            sheet.text(vocabulary.person(rng), left + float(rng.uniform(4, 8)), y, sheet.kind(sheet.faces.typed))
    return y


def _remarks(sheet: Sheet, left: float, right: float, y: float) -> float:
    """A heading and empty lines, written on by hand in some cases."""
    rng = sheet.rng
    y += 0.8
    end = sheet.text(pick(rng, ("Remarks:", "Comments", "NOTES:", "Reasons:", "Other:")), left, y, label_kind(sheet))
    pitch, hand = float(rng.uniform(1.6, 2.6)), chance(rng, 0.45)
    ruled = chance(rng, 0.6) or not hand
    for row in range(int(rng.integers(1, 5))):
        x = end + 1 if row == 0 else left
        if sheet.is_full(y):
            break
        if hand:
            sheet.by_hand(vocabulary.phrase(rng, int(rng.integers(2, 6))), x, y, hand_size(sheet), right)
        if ruled:
            sheet.rule(end + 1 if row == 0 else left, y + 0.25, right, 0.06)
        y += pitch
    return y - pitch


def print_extras(sheet: Sheet, left: float, right: float, y: float) -> None:
    """What files add: a number along the edge or in the corner, the line of a fax, stamps, form numbers."""
    rng = sheet.rng
    if chance(rng, 0.6):
        _file_number(sheet, right, y)
    if chance(rng, 0.12):
        sent = f"{vocabulary.long_date(rng).upper()}  {vocabulary.time(rng)}"
        text = f"{sent}  FROM {vocabulary.firm(rng).upper()}  P.{vocabulary.number(rng, 2)}"
        sheet.text(text, 1.5, 1.1, sheet.kind(sheet.faces.typed, float(rng.uniform(0.7, 1.0))))
    if chance(rng, 0.2):
        center = (
            float(rng.uniform(0.6, 0.85)) * sheet.width * sheet.em,
            float(rng.uniform(0.08, 0.5)) * sheet.height * sheet.em,
        )
        size = (float(rng.uniform(8, 12)) * sheet.em, float(rng.uniform(4, 8)) * sheet.em)
        print_stamp(sheet.printer, pick(rng, vocabulary.STAMPS), (sheet.faces.headline, sheet.faces.bold), center, size)
    if chance(rng, 0.4) and not sheet.is_full(y + 2.6):
        text = pick(rng, ("Form", "FORM NO.", "Rev.", "PAGE")) + " " + vocabulary.code(rng)
        sheet.text(text, left, y + 2.6, sheet.kind(sheet.faces.printed, 0.65))


def _file_number(sheet: Sheet, right: float, y: float) -> None:
    rng = sheet.rng
    kind = sheet.kind(
        pick(rng, (sheet.faces.bold, "DejaVuSerif-Bold.ttf", "DejaVuSansMono-Bold.ttf")), float(rng.uniform(1.2, 1.8))
    )
    text = vocabulary.number(rng, int(rng.integers(8, 10)))
    if chance(rng, 0.5):
        at = (right + (sheet.width - right) * 0.6) * sheet.em, sheet.height * float(rng.uniform(0.6, 0.88)) * sheet.em
        sheet.printer.bent(text, kind, at, angle=math.pi / 2)
    elif y < sheet.height - 5:
        sheet.text(text, right, sheet.height - float(rng.uniform(0.8, 1.8)), kind, "right")


_SECTIONS: tuple[Section, ...] = (_fields, _fields, _grid, _table, _prose, _ticks, _signatures, _remarks)

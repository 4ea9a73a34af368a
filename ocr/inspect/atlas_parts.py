"""Parts of the atlas that need no script: figures, the causes, groups, curves and calibration."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from ocr.inspect.curves import Point
from ocr.inspect.gains import Gain
from ocr.inspect.inspection import Inspection

WIDTH, HEIGHT, MARGIN = 320, 190, 30
CHANGED = ("gained", "lost", "gone", "new")


def tiles(inspection: Inspection) -> str:
    """The most important figures."""
    counts = inspection.counts
    facts = {
        "H-mean, IoU 0.5": f"{counts.hmean:.3f}",
        "H-mean, IoU 0.7": f"{inspection.tight.hmean:.3f}",
        "CLEval H-mean": f"{inspection.cleval[2]:.3f}",
        "pages": f"{len(inspection.pages):,}",
        "words missed": f"{counts.words - counts.matched:,} of {counts.words:,}",
        "boxes false": f"{counts.boxes - counts.matched:,} of {counts.boxes:,}",
    }
    shown = "".join(f"<div><dt>{name}</dt><dd>{value}</dd></div>" for name, value in facts.items())
    return f'<dl class="tiles">{shown}</dl>'


def causes_section(gains: Sequence[Gain]) -> str:
    """Every cause with its gain; its name filters the pages."""
    if not gains:
        return "<section><h2>No errors</h2></section>"
    rows = []
    for gain in gains:
        cause = escape(gain.cause)
        button = f'<button type="button" data-cause="{cause}" aria-pressed="false">{cause}</button>'
        rows.append([button, str(gain.missed), str(gain.false), f"{gain.points:+.2f}", escape(gain.cure)])
    head = ["cause", "missed", "false", "points", "what would help"]
    table = _table("causes", head, rows, numbers=range(1, 4))
    return f"<section><h2>Why, and the points of H-mean if it were cured</h2>{table}</section>"


def options(gains: Sequence[Gain], compared: bool) -> str:
    """The causes to filter by."""
    names = [gain.cause for gain in gains] + (list(CHANGED) if compared else [])
    return "".join(f"<option>{escape(name)}</option>" for name in names)


def details_section(inspection: Inspection) -> str:
    """Curves, calibration and groups, folded."""
    own = {"thresh": inspection.boxes.thresh, "box_thresh": inspection.boxes.box_thresh, "iou": 0.5}
    titles = {"thresh": "boxes.thresh", "box_thresh": "boxes.box_thresh", "iou": "IoU from which a box counts"}
    charts = "".join(_chart(titles[name], curve, own[name]) for name, curve in inspection.curves.items())
    bins, error = inspection.calibration
    scores = [
        [f"{item.low:.1f} to {item.high:.1f}", str(item.boxes), f"{item.mean_score:.2f}", f"{item.right:.2f}"]
        for item in bins
    ]
    groups = []
    for group in inspection.groups:
        shares = [_number(value) for value in (group.recall, group.precision, group.hmean)]
        name = escape(f"{group.kind}: {group.name}")
        groups.append([name, str(group.words), shares[0], str(group.boxes), *shares[1:]])
    score_table = _table("calibration", ["score", "boxes", "mean score", "share right"], scores)
    group_table = _table("groups", ["group", "words", "recall", "boxes", "precision", "H-mean"], groups)
    return (
        '<details><summary>Scores over thresholds</summary><p class="key"><i class="hmean"></i>H-mean'
        '<i class="precision" style="border-color: var(--box)"></i>precision'
        '<i class="recall" style="border-color: var(--truth)"></i>recall; upright: the value in use</p>'
        f'<div class="charts">{charts}</div></details>'
        f"<details><summary>Scores by group</summary>{group_table}</details>"
        f"<details><summary>Calibration of box scores: off by {error:.2f} on average</summary>"
        f"{score_table}</details>"
    )


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def _table(name: str, head: Sequence[str], rows: Sequence[Sequence[str]], numbers: range = range(1, 9)) -> str:
    """Cells are HTML; the first of a row names it."""

    def cells(row: Sequence[str], other: str) -> str:
        tags = ["th", *[other] * (len(row) - 1)]
        marks = [' class="number"' if at in numbers else "" for at in range(len(row))]
        return "".join(f"<{tag}{mark}>{text}</{tag}>" for tag, mark, text in zip(tags, marks, row, strict=True))

    body = "".join(f"<tr>{cells(row, 'td')}</tr>" for row in rows)
    return (
        f'<div class="scroll {name}" tabindex="0" role="region" aria-label="{name}"><table>'
        f"<thead><tr>{cells(head, 'th')}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def _chart(title: str, curve: Sequence[Point], own: float) -> str:
    """Precision, recall and H-mean over one threshold."""
    low, high = curve[0].value, curve[-1].value

    def place(value: float, score: float) -> tuple[float, float]:
        x = MARGIN + (value - low) / max(high - low, 1e-9) * (WIDTH - 2 * MARGIN)
        return x, HEIGHT - MARGIN - score * (HEIGHT - MARGIN - 10)

    lines = []
    for score in (0.0, 0.5, 1.0):
        x, y = place(low, score)
        lines.append(f'<line class="grid" x1="{x:.1f}" x2="{WIDTH - MARGIN}" y1="{y:.1f}" y2="{y:.1f}"/>')
        lines.append(f'<text x="{x - 4:.1f}" y="{y + 4:.1f}" text-anchor="end">{score:g}</text>')
    for value in (low, high):
        x, y = place(value, 0)
        lines.append(f'<text x="{x:.1f}" y="{y + 16:.1f}" text-anchor="middle">{value:g}</text>')
    x, y = place(own, 0)
    lines.append(f'<line class="own" x1="{x:.1f}" x2="{x:.1f}" y1="10" y2="{y:.1f}"/>')
    for name in ("precision", "recall", "hmean"):
        points = (place(point.value, getattr(point.counts, name)) for point in curve)
        shown = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        lines.append(f'<polyline class="{name}" points="{shown}"/>')
    label = f"precision, recall and H-mean over {title}"
    svg = f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(label)}">{"".join(lines)}</svg>'
    return f'<figure class="chart"><figcaption>{escape(title)}</figcaption>{svg}</figure>'

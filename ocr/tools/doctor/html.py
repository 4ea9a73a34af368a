"""The report as one HTML file that needs nothing else: tables on top, then the offenders drawn."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from html import escape
from pathlib import Path

from ocr.atomic import replacing
from ocr.system import usable_cores
from ocr.tools.doctor.drawing import draw_finding
from ocr.tools.doctor.findings import KINDS, Finding, Report
from ocr.tools.doctor.report import verdict_text
from ocr.tools.terminal import printable

# Browsers stay fast with a few hundred pictures, and two dozen show the pattern.
PICTURES_PER_KIND = 24
LINES_PER_KIND = 100

STYLE = """
:root { --ink: #1f2430; --soft: #667085; --line: #e4e7ec; --error: #c4320a; --warning: #a15c07; --note: #475467;
        --bad: #e5231b; --good: #12945a; }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 1180px; padding: 32px 24px 64px; color: var(--ink); background: #fafbfc;
       font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", "DejaVu Sans", sans-serif; }
h1 { font-size: 24px; margin: 0 0 4px; }
h2 { font-size: 18px; margin: 40px 0 2px; scroll-margin-top: 16px; }
p { margin: 0 0 12px; color: var(--soft); }
code, .name { font-family: ui-monospace, "SF Mono", Menlo, "DejaVu Sans Mono", monospace; font-size: 13px; }
.verdict { display: inline-block; margin: 12px 0 20px; padding: 6px 14px; border-radius: 999px; font-weight: 600; }
.verdict.ok { background: #e3f6ec; color: #0b6b3f; }
.verdict.wrong { background: #fdeae5; color: var(--error); }
table { border-collapse: collapse; margin: 0 0 24px; background: #fff; border: 1px solid var(--line);
        border-radius: 10px; overflow: hidden; box-shadow: 0 1px 2px #1018280d; }
th, td { padding: 7px 14px; text-align: left; border-bottom: 1px solid var(--line); }
th { font-weight: 600; font-size: 13px; color: var(--soft); background: #f5f6f8; }
tr:last-child td { border-bottom: 0; }
td.number, th.number { text-align: right; font-variant-numeric: tabular-nums; }
td a { color: inherit; }
.badge { display: inline-block; padding: 1px 9px; border-radius: 999px; font-size: 12px; font-weight: 600; }
.badge.error { background: #fdeae5; color: var(--error); }
.badge.warning { background: #fdf1d8; color: var(--warning); }
.badge.note { background: #eef0f3; color: var(--note); }
h2 .badge { vertical-align: 2px; margin-left: 8px; }
.grid { display: grid; grid-template-columns: repeat(auto-fill, minmax(260px, 1fr)); gap: 16px; }
figure { margin: 0; background: #fff; border: 1px solid var(--line); border-radius: 10px; overflow: hidden;
         box-shadow: 0 1px 2px #1018280d; }
figure svg { display: block; width: 100%; max-height: 340px; background: #d5dae1; }
figcaption { padding: 10px 12px 12px; font-size: 13px; color: var(--soft); overflow-wrap: anywhere; }
figcaption .name { display: block; color: var(--ink); }
polygon { fill: none; stroke-width: 1px; vector-effect: non-scaling-stroke; stroke-linejoin: round; }
polygon.word { stroke: #3b7ddd; stroke-opacity: .45; }
polygon.bad { stroke: var(--bad); stroke-width: 2px; fill: var(--bad); fill-opacity: .12; }
polygon.good { stroke: var(--good); stroke-width: 2px; stroke-dasharray: 5 3; }
svg.page polygon.bad { stroke-width: 1px; }
svg.page polygon.good { stroke-width: 1.2px; stroke-dasharray: none; fill: var(--good); fill-opacity: .15; }
circle { fill: var(--bad); }
ul { margin: 0; padding: 8px 16px; list-style: none; background: #fff; border: 1px solid var(--line);
     border-radius: 10px; overflow-wrap: anywhere; }
li { padding: 4px 0; font-size: 14px; color: var(--soft); }
li .name { color: var(--ink); margin-right: 8px; }
.more { margin: 12px 0 0; }
.grid + ul, ul + .grid { margin-top: 16px; }
.key i { font-style: normal; font-weight: 600; }
.key .bad { color: var(--bad); } .key .good { color: var(--good); } .key .word { color: #3b7ddd; }
"""
KEY = (
    '<p class="key">In the pictures: <i class="bad">red</i> is the offender as written, '
    '<i class="good">green</i> what <code>--fix</code> would write, <i class="word">blue</i> the other words.</p>'
)


def write_html(report: Report, path: Path) -> None:
    """Write the page atomically."""
    with replacing(path) as stream:
        stream.write(render_html(report).encode())


def render_html(report: Report) -> str:
    """The page as text."""
    state = "ok" if report.ok else "wrong"
    sections = "".join(_section(report, kind, findings) for kind, findings in report.by_kind().items())
    frame = f"page size {report.size}, annotation frame {report.annotation_frame}"
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>ocr doctor: {escape(report.data.name)}</title><style>{STYLE}</style></head><body>"
        f"<h1>ocr doctor</h1><p><code>{escape(str(report.data))}</code>, {escape(frame)}</p>"
        f'<div class="verdict {state}">{escape(verdict_text(report))}</div>'
        f"{_splits_table(report)}{_kinds_table(report)}{KEY if report.findings else ''}{sections}"
        "</body></html>\n"
    )


def _table(head: Sequence[str], rows: Sequence[Sequence[str]], numbers: range) -> str:
    def cells(tag: str, row: Sequence[str]) -> str:
        marked = (f"<{tag}{' class=number' if at in numbers else ''}>{cell}</{tag}>" for at, cell in enumerate(row))
        return f"<tr>{''.join(marked)}</tr>"

    return f"<table>{cells('th', head)}{''.join(cells('td', row) for row in rows)}</table>"


def _splits_table(report: Report) -> str:
    rows = []
    for split in report.splits:
        counts = split.counts
        turned = ", ".join(f"{count} × {key}" for key, count in sorted(counts.orientations.items()) if key != 1)
        pixels = "-" if counts.megapixels is None else "{0:g} - {2:g}, median {1:g}".format(*counts.megapixels)
        numbers = (counts.pages, counts.words, counts.ignored, counts.images)
        rows.append([escape(split.name), *map(str, numbers), pixels, turned or "none"])
    head = ["split", "pages", "words", "ignored", "images", "megapixels", "EXIF orientations"]
    return _table(head, rows, range(1, 6))


def _kinds_table(report: Report) -> str:
    names = [split.name for split in report.splits]
    rows = []
    for kind, findings in report.by_kind().items():
        counts = [sum(finding.split == name for finding in findings) for name in names]
        rows.append(
            [
                f'<a href="#{kind}">{kind}</a>',
                _badge(kind),
                *(str(c) if c else "·" for c in counts),
                KINDS[kind].meaning,
            ]
        )
    if not rows:
        return ""
    return _table(["finding", "severity", *map(escape, names), "meaning"], rows, range(2, 2 + len(names)))


def _badge(kind: str) -> str:
    severity = KINDS[kind].severity
    return f'<span class="badge {severity}">{severity}</span>'


def _section(report: Report, kind: str, findings: Sequence[Finding]) -> str:
    splits = {split.name: split for split in report.splits}
    first = findings[:PICTURES_PER_KIND]
    with ThreadPoolExecutor(usable_cores()) as threads:
        pictures = list(threads.map(lambda finding: draw_finding(finding, splits[finding.split]), first))
    drawn = [(finding, picture) for finding, picture in zip(first, pictures, strict=True) if picture]
    plain = [finding for finding, picture in zip(first, pictures, strict=True) if not picture]
    if not drawn:
        plain = list(findings[:LINES_PER_KIND])
    figures = "".join(f"<figure>{picture}<figcaption>{_caption(f)}</figcaption></figure>" for f, picture in drawn)
    lines = "".join(f"<li>{_caption(finding)}</li>" for finding in plain)
    left = len(findings) - len(drawn) - len(plain)
    return (
        f'<h2 id="{kind}">{kind} <span class="badge {KINDS[kind].severity}">{len(findings)}</span></h2>'
        f"<p>{escape(KINDS[kind].meaning[:1].upper() + KINDS[kind].meaning[1:])}. {escape(KINDS[kind].cure)}.</p>"
        + (f'<div class="grid">{figures}</div>' if figures else "")
        + (f"<ul>{lines}</ul>" if lines else "")
        + (f'<p class="more">and {left} more; <code>--json</code> lists every one</p>' if left else "")
    )


def _caption(finding: Finding) -> str:
    place = finding.place if finding.image else finding.split
    return f'<span class="name">{escape(place)}</span>{escape(printable(finding.detail))}'

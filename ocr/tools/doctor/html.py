"""The report as one HTML file that needs nothing else: tables on top, then the findings drawn."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from ocr.report.numbers import MISSING, in_count
from ocr.report.page import write_page
from ocr.system import usable_cores
from ocr.tools.doctor.drawing import draw_finding
from ocr.tools.doctor.findings import KINDS, Finding, Report, Split
from ocr.tools.doctor.report import verdict_text

# Browsers stay fast with a few hundred pictures, and two dozen show the pattern.
PICTURES_PER_KIND = 24
LINES_PER_KIND = 100


def write_html(report: Report, path: Path) -> None:
    """Write the page atomically."""
    splits = [split.counts for split in report.splits]
    write_page(
        path,
        "doctor.html",
        title=f"doctor: {report.data.name}",
        heading="doctor",
        sentence=verdict_text(report),
        state="ok" if report.ok else "wrong",
        report=report,
        tiles=[
            ("pages", in_count(sum(counts.pages for counts in splits))),
            ("words", in_count(sum(counts.words for counts in splits))),
            *((f"{severity}s", in_count(count)) for severity, count in report.severities().items()),
        ],
        splits=[_split_row(split) for split in report.splits],
        kinds=[_kind(report, name, findings) for name, findings in report.by_kind().items()],
    )


def _split_row(split: Split) -> list[str]:
    counts = split.counts
    turned = ", ".join(f"{in_count(count)} × {key}" for key, count in sorted(counts.orientations.items()) if key != 1)
    pixels = "{0:g} to {2:g}, median {1:g}".format(*counts.megapixels) if counts.megapixels else MISSING
    numbers = map(in_count, (counts.pages, counts.words, counts.ignored, counts.images))
    return [split.name, *numbers, pixels, turned or "none"]


def _kind(report: Report, name: str, findings: Sequence[Finding]) -> dict[str, Any]:
    """Findings of one kind: those that can be drawn, the others as lines, and how many are left."""
    splits = {split.name: split for split in report.splits}
    first = findings[:PICTURES_PER_KIND]
    with ThreadPoolExecutor(usable_cores()) as threads:
        drawn = list(threads.map(lambda finding: draw_finding(finding, splits[finding.split]), first))
    pictures = [(finding, picture) for finding, picture in zip(first, drawn, strict=True) if picture]
    lines = [finding for finding, picture in zip(first, drawn, strict=True) if not picture]
    if not pictures:
        lines = list(findings[:LINES_PER_KIND])
    counts = [sum(finding.split == split for finding in findings) for split in splits]
    return {
        "name": name,
        "severity": KINDS[name].severity,
        "meaning": KINDS[name].meaning,
        "fix": KINDS[name].fix,
        "count": len(findings),
        "counts": [in_count(count) if count else "·" for count in counts],
        "pictures": pictures,
        "lines": lines,
        "left": len(findings) - len(pictures) - len(lines),
    }

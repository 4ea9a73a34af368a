"""`glyphfeed doctor`: what is wrong with a dataset, before training finds out."""

from ocr.tools.doctor.examine import examine
from ocr.tools.doctor.findings import KINDS, Finding, Report
from ocr.tools.doctor.fix import FixSummary, write_fixed
from ocr.tools.doctor.html import write_html
from ocr.tools.doctor.report import print_fix, print_report

__all__ = [
    "KINDS",
    "Finding",
    "FixSummary",
    "Report",
    "examine",
    "print_fix",
    "print_report",
    "write_fixed",
    "write_html",
]

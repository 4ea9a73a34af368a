"""Synthetic receipts, forms, letters and invoices with exact polygons.

A kind of page is one entry of `kinds.KINDS` and a function that lays it out: receipt -> typeset for receipts; form,
letter and invoice on a sheet for office paper. Both print with printer, whose words layout turns into labels. Then, for
every page, background -> ink_effects -> handwriting -> text_path -> capture_effects -> page -> write.
"""

from ocr.tools.synth.page import SynthPage, encode_page, render_page
from ocr.tools.synth.write import SynthSummary, synthesize

__all__ = ["SynthPage", "SynthSummary", "encode_page", "render_page", "synthesize"]

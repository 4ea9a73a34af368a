"""Synthetic receipts, forms, letters and invoices with exact polygons.

kinds chooses what a page is. A receipt: content (its lines) -> typeset. A document: form, letter, invoice on a sheet.
Both print with printer, whose words units turns into labels. Then, for every page, paper -> press -> pen -> warp ->
degrade, scanner -> page -> write: the sheet with its ink, what printer and pen did to it, the map to the page, what the
camera or scanner adds, the page as a JPEG, and the folder of pages with their annotation. measure gives any page in
numbers.
"""

from ocr.tools.synth.page import SynthPage, encode_page, render_page
from ocr.tools.synth.write import SynthSummary, synthesize

__all__ = ["SynthPage", "SynthSummary", "encode_page", "render_page", "synthesize"]

"""Synthetic receipts with exact polygons.

content -> layout -> paper -> warp -> degrade -> page -> write: what a receipt says, where its lines are, the sheet with
its ink, the map to the page, what the camera adds, the page as a JPEG, and the folder of pages with their annotation.
"""

from ocr.tools.synth.page import SynthPage, encode_page, render_page
from ocr.tools.synth.write import SynthSummary, synthesize

__all__ = ["SynthPage", "SynthSummary", "encode_page", "render_page", "synthesize"]

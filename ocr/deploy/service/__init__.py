"""`glyphfeed serve`: a detector behind HTTP, within limits, and a web page to try it.

upload -> limits -> page threads (decode ... boxes) -> micro-batches of the model -> JSON
"""

"""Moved to benchmarks/documents.py."""

from benchmarks.documents import BEGIN, END, begin, read_part, replace_part, table_line, table_lines

__all__ = ["BEGIN", "END", "begin", "names_of_parts", "read_part", "replace_part", "table_line", "table_lines"]


def names_of_parts(text: str) -> list[str]:
    """The parts of a document, in their order."""
    return BEGIN.findall(text)

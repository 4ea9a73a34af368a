"""XML of annotation tools, parsed without document types: they can define entities that grow or read other files."""

from __future__ import annotations

import re
from xml.etree import ElementTree
from xml.sax.saxutils import escape, quoteattr

from ocr.errors import AnnotationError

# A document type can only stand here, before the first element.
_PROLOG = re.compile(r"\ufeff?(?:<\?.*?\?>|<!--.*?-->|\s)*", re.DOTALL)
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_TAG = re.compile(r"<([^\s/>!?]+)")


def looks_like_xml(text: str) -> bool:
    """Whether a text begins as XML does."""
    return text.lstrip("\ufeff \t\r\n").startswith("<")


def root_tag(text: str) -> str | None:
    """The name of the first element without its namespace, found without parsing the rest.

    >>> root_tag('<?xml version="1.0"?><!-- made by hand --><pc:PcGts xmlns:pc="x">')
    'PcGts'
    """
    tag = _TAG.match(text, _end_of_prolog(text))
    return tag[1].rsplit(":")[-1] if tag else None


def parse_xml(text: str, where: str) -> ElementTree.Element:
    """The first element of an XML text, tags without their namespaces."""
    if text.startswith("<!DOCTYPE", _end_of_prolog(text)):
        raise AnnotationError(
            f"{where}: the XML has a document type, which is unsafe. Remove <!DOCTYPE ...>", value="<!DOCTYPE"
        )
    try:
        root = ElementTree.fromstring(text)
    except (ElementTree.ParseError, ValueError) as error:
        raise AnnotationError(
            f"{where}: not valid XML ({error}). Correct or download the file again", value=str(error)
        ) from error
    for element in root.iter():
        element.tag = element.tag.rpartition("}")[2]
    return root


def xml_text(text: str) -> str:
    """A text as it is written between tags; a character that XML cannot hold becomes a question mark in a diamond."""
    return escape(_NOT_XML.sub("\ufffd", text), {"\r": "&#13;"})


def xml_attribute(text: str) -> str:
    """A text as it is written after the name of an attribute, with its quotes."""
    return quoteattr(_NOT_XML.sub("\ufffd", text))


def _end_of_prolog(text: str) -> int:
    match = _PROLOG.match(text)
    return match.end() if match else 0

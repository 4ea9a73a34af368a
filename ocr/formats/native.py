"""The native JSON: `{"images": {"a.jpg": {"img_w": 9, "img_h": 9, "words": {"0001": {"points": [[x, y], ...]}}}}}`."""

from __future__ import annotations

import json
import os
import re
from array import array
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import xxhash

from ocr.atomic import replacing
from ocr.errors import AnnotationError
from ocr.formats.annotation import Annotations, Page, Word
from ocr.formats.json_stream import JsonStream
from ocr.formats.lines import in_file, shorten
from ocr.formats.row_mapping import RowMapping, RowMappingWriter
from ocr.geometry.polygons import UNITS

if TYPE_CHECKING:
    from ocr.formats.page_builder import PageBuilder

# With == in mind: 0, 1, 0.0 and 1.0 pass too.
_FLAGS = (False, True, None)
_UNITS = {name: name for name in (*UNITS, None)}
_START = re.compile(rb'(\xef\xbb\xbf)?\s*\{\s*"images"\s*:\s*\{')


def sniff_native(root: Any) -> bool:
    """Whether a JSON value looks like the native one, or is meant to be."""
    if not isinstance(root, dict) or "images" not in root:
        return False
    return not (isinstance(root["images"], list) and "annotations" in root)


def read_native(pages: PageBuilder) -> None:
    """Pages by image, in the order of the file."""
    found = _parse_root(pages.root, pages.where)
    refuse_duplicates(pages.text, pages.where, found)
    pages.adopt(found)


def _parse_root(root: Any, where: str) -> dict[str, Page]:
    if not isinstance(root, dict):
        raise AnnotationError(
            f'{where}: the file holds a {type(root).__name__}, expected {{"images": {{...}}}}. Correct it', value=root
        )
    images = root.get("images")
    if isinstance(images, list):
        raise AnnotationError(
            f'{where}: "images" is a list, as in COCO. Set annotation_format to coco or auto',
            setting="images",
            value=images,
        )
    if not isinstance(images, dict):
        state = (
            f"is {shorten(images, 40)}" if "images" in root else f"is missing; the file has {shorten(list(root), 60)}"
        )
        raise AnnotationError(
            f'{where}: "images" {state}. Map file names to pages, or write {{}} for none',
            setting="images",
            value=images,
        )
    return {name: _parse_page(page, where, name) for name, page in images.items()}


def refuse_duplicates(text: str, where: str, pages: Mapping[str, Page]) -> None:
    """Refuse a file that names a page or a word twice: JSON keeps the last one, and the words of the other are lost.

    Watching every object adds 13 % to the reading of 1400 pages with 53 words each, counting the points 3 %. The file
    is read again only if the count differs, for that reason or a harmless one.
    """
    if text.count('"points"') != sum(len(page.words) for page in pages.values()):
        json.loads(text, object_pairs_hook=lambda pairs: _without_duplicates(pairs, where))


def stream_native(path: Path) -> Iterator[tuple[str, Page]]:
    """The pages of a file that is larger than memory, one by one; what `read_native` refuses is refused here too."""
    where, hashes = str(path), array("Q")
    try:
        with in_file(path), path.open("rb") as stream:
            for name, page, text in JsonStream(stream, "images"):
                assert name is not None
                pages = {name: _parse_page(page, where, name)}
                refuse_duplicates(text, where, pages)
                hashes.append(_hash(name))
                yield name, pages[name]
    except AnnotationError:
        raise
    except (ValueError, RecursionError) as error:
        raise AnnotationError(
            f"{where}: not valid JSON ({error}). Export it again, or set annotation_format to its format",
            value=str(error),
            path=path,
        ) from error
    _refuse_repeated_pages(path, hashes)


def keep_native(path: Path) -> RowMapping[Page]:
    """All pages of such a file, by image, none of them in memory."""
    writer = RowMappingWriter(_to_stored, _from_stored)
    for name, page in stream_native(path):
        writer.add(name, page)
    return writer.mapping()


def _to_stored(page: Page) -> list[Any]:
    words = [
        [word.key, word.points, word.text, word.ignore, word.language, word.orientation, None, word.unit]
        for word in page.words
    ]
    return [words, page.size]


def _from_stored(name: str, stored: Any) -> Page:
    words, size = stored
    made = tuple([Word(*word) for word in words])
    return Page(made, None if size is None else (size[0], size[1]))


def looks_native(path: Path) -> bool:
    """Whether a file starts as the native JSON does, with its pages."""
    with path.open("rb") as stream:
        return _START.match(stream.read(4096)) is not None


def _refuse_repeated_pages(path: Path, hashes: array[int]) -> None:
    """Like `refuse_duplicates`, for the pages of a file of which only 8 bytes per name are at hand."""
    ordered = np.sort(np.frombuffer(hashes, dtype=np.uint64)) if hashes else np.zeros(0, np.uint64)
    repeated = set(ordered[1:][ordered[1:] == ordered[:-1]].tolist())
    if not repeated:
        return
    seen = set()
    with path.open("rb") as stream:
        for name, _, _ in JsonStream(stream, "images"):
            if name in seen:
                raise AnnotationError(
                    f"{path}: {shorten(name)} occurs twice. Rename one, or merge them",
                    value=name,
                    path=path,
                )
            if name is not None and _hash(name) in repeated:
                seen.add(name)


def _hash(name: str) -> int:
    return xxhash.xxh3_64_intdigest(name.encode(errors="surrogatepass"))


def _without_duplicates(pairs: list[tuple[str, Any]], where: str) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        seen = set()
        for key, value in pairs:
            # Other duplicate fields lose nothing that is trained on.
            if key in seen and isinstance(value, dict | list):
                raise AnnotationError(
                    f"{where}: {shorten(key)} occurs twice in one object, the second time as {shorten(value)}. "
                    "Rename one, or merge them",
                    value=key,
                )
            seen.add(key)
    return made


def _parse_page(page: Any, where: str, name: str) -> Page:
    if page is None:
        return Page()
    if not isinstance(page, dict):
        raise AnnotationError(
            f"{where}: {name}: the page is {shorten(page)}, expected an object. Correct the file", value=page
        )
    size = page_size(page.get("img_w"), page.get("img_h"), f"{where}: {name}")
    words = page.get("words")
    if isinstance(words, list):
        words = {f"{at:04d}": word for at, word in enumerate(words, start=1)}
    if words in (None, {}):
        return Page((), size)
    unit = page.get("unit")
    # The common case in one pass; on an error the words are checked one by one, to name the bad one.
    try:
        made = [
            Word(
                key,
                word.get("points"),
                word.get("transcription"),
                _FLAGS.index(word.get("illegibility")) == 1,
                word.get("language"),
                word.get("orientation"),
                unit=_UNITS[word.get("unit", unit)],
            )
            for key, word in words.items()
        ]
    except (AttributeError, ValueError, KeyError, TypeError) as error:
        raise _culprit(words, unit, f"{where}: {name}") from error
    return Page(tuple(made), size)


def _culprit(words: Any, unit: Any, place: str) -> AnnotationError:
    if not isinstance(words, dict):
        return AnnotationError(
            f'{place}: "words" is {shorten(words)}, expected an object. Correct the file', setting="words", value=words
        )
    for key, word in words.items():
        if not isinstance(word, dict):
            return AnnotationError(
                f'{place}: word {key} is {shorten(word)}, expected {{"points": [[x, y], ...]}}. Correct the file',
                value=word,
            )
        said = word.get("unit", unit)
        if said not in (*UNITS, None):
            return AnnotationError(
                f"{place}: word {key}: unit is {shorten(said)}. Write lines or words, or leave it out",
                setting="unit",
                value=said,
            )
        if word.get("illegibility") not in _FLAGS:
            break
    return AnnotationError(
        f"{place}: word {key}: illegibility is {shorten(word.get('illegibility'))}. Write true or false",
        setting="illegibility",
        value=word.get("illegibility"),
    )


def page_size(width: Any, height: Any, place: str) -> tuple[int, int] | None:
    """The page size that an annotation states; None if it states none."""
    if width is None or height is None:
        return None
    if all(type(side) in (int, float) and 0 < side < 2**31 and side == int(side) for side in (width, height)):
        return int(width), int(height)
    raise AnnotationError(
        f"{place}: the page's size is {shorten(width)} x {shorten(height)}. Write whole pixels, or leave both out",
        value=(width, height),
    )


def text_size(width: Any, height: Any, place: str) -> tuple[int, int] | None:
    """`page_size` of numbers that can be texts, as in XML and in some exporters' JSON."""
    width, height = (
        int(side) if isinstance(side, str) and side.isdecimal() and len(side) < 10 else side for side in (width, height)
    )
    return page_size(width, height, place)


def write_native(annotations: Annotations, path: str | os.PathLike[str]) -> None:
    """Write the native JSON, one line per page, atomically."""
    with replacing(path) as stream:
        for part in native_text(annotations.pages):
            stream.write(part.encode())


def native_text(pages: Mapping[str, Page], scores: Mapping[str, Sequence[float]] | None = None) -> Iterator[str]:
    """The native JSON in parts, with the scores of the words if they are predictions."""
    separator = '{"images": {\n'
    for name, page in pages.items():
        entry = _page_entry(page, name)
        for word, score in zip(entry["words"].values(), scores.get(name, ()) if scores else (), strict=False):
            word["score"] = score
        yield f"{separator}{to_json(name)}: {to_json(entry)}"
        separator = ",\n"
    yield "\n}}\n" if pages else '{"images": {}}\n'


def to_json(value: Any) -> str:
    """JSON on one line, which can be written as UTF-8."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    # Half of a surrogate pair can be written in JSON only as an escape.
    return text if text.isascii() or _is_utf8(text) else json.dumps(value, separators=(",", ":"))


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _page_entry(page: Page, name: str) -> dict[str, Any]:
    words = {word.key: _word_entry(word) for word in page.words}
    if len(words) != len(page.words):
        raise AnnotationError(f"{name}: two words share a key. Assign each word of a page its own id", value=name)
    size = {} if page.size is None else {"img_w": page.size[0], "img_h": page.size[1]}
    units = {word.unit for word in page.words}
    said = {"unit": units.pop()} if len(units) == 1 and None not in units else {}
    for word in page.words if units else ():
        if word.unit is not None:
            words[word.key]["unit"] = word.unit
    return {**size, **said, "words": words}


def _word_entry(word: Word) -> dict[str, Any]:
    entry: dict[str, Any] = {"points": word.points}
    if word.text is not None:
        entry["transcription"] = word.text
    if word.ignore:
        entry["illegibility"] = True
    if word.language is not None:
        entry["language"] = word.language
    if word.orientation is not None:
        entry["orientation"] = word.orientation
    if word.note is not None:
        entry["note"] = word.note
    return entry

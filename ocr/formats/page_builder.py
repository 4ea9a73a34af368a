"""The pages of one file while they are read: names, duplicates, sizes and errors, which all formats share."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

from ocr.errors import AnnotationError
from ocr.formats.annotation import Page, Word
from ocr.formats.categories import Categories
from ocr.formats.lines import collected, raise_collected
from ocr.formats.names import ImageNames
from ocr.formats.native import text_size
from ocr.formats.xml_tree import looks_like_xml

IGNORED = "###"
"""What most datasets write in place of an illegible text."""


class PageBuilder:
    """Takes the pages of a file: names their images, rejects duplicates, and collects errors until all is read."""

    def __init__(
        self,
        path: Path,
        text: str,
        root: Any,
        names: ImageNames,
        categories: Categories | None = None,
        notes: list[str] | None = None,
    ) -> None:
        self.path, self.text, self.names = path, text, names
        self.where = str(path)
        """The file, as messages name it."""
        self.root = root
        """The value of JSON, the first element of XML, None of other text."""
        self.categories = Categories() if categories is None else categories
        self.notes: list[str] = [] if notes is None else notes
        """What was skipped or assumed."""
        self._pages: dict[str, NewPage] = {}
        self._claimed: dict[str, str] = {}
        self._whole: dict[str, Page] = {}
        self._faults: list[AnnotationError] = []

    @contextmanager
    def page(self, place: str | None = None) -> Iterator[NewPage]:
        """A page to fill, which must name its image; an error in it is reported when the whole file is read."""
        page = NewPage(self, place)
        with self.part():
            yield page
            assert page.name is not None, "a page without an image"
            self._pages[page.name] = page

    def part(self) -> AbstractContextManager[None]:
        """An error in this part of the file does not keep the rest from being read."""
        return collected(self._faults)

    def adopt(self, pages: dict[str, Page]) -> None:
        """Take pages that are complete."""
        self._whole.update(pages)

    def claim(self, name: str, place: str) -> None:
        """Refuse an image that has a page already."""
        first = self._claimed.setdefault(name, place)
        if first != place or name in self._pages:
            earlier = first.removeprefix(self.where).lstrip(":, ")
            raise AnnotationError(
                f"{place}: {name} occurs twice, first as {earlier}. Remove one, or set image_path to the folder that "
                "the paths start from",
                value=name,
            )

    def finish(self) -> dict[str, Page]:
        """All pages; one error that lists all errors if there was any."""
        raise_collected(self._faults)
        return self._whole | {name: Page(tuple(page.words), page.size) for name, page in self._pages.items()}


class NewPage:
    """One page: its image, its size, and its words in their order."""

    def __init__(self, builder: PageBuilder, place: str | None) -> None:
        self._builder, self._is_file = builder, place is None
        self.place = builder.where if place is None else place
        """How messages name it."""
        self.name: str | None = None
        self.size: tuple[int, int] | None = None
        self.words: list[Word] = []

    def of_path(self, written: str) -> None:
        """The image is the one of this path, which another machine can have written."""
        self._named(self._builder.names.of_path(written))

    def of_stem(self, stem: str, suffix: str = ".jpg") -> None:
        """The image is the one of this name without an extension, which is `suffix` if the folder does not say."""
        self._named(self._builder.names.of_stem(stem, self._builder.where, suffix))

    def of_label(self) -> None:
        """The image is the one that the name of the label file refers to."""
        self._named(self._builder.names.of_label(self._builder.path))

    def _named(self, name: str) -> None:
        self._builder.claim(name, self.place)
        self.name = name
        if not self._is_file:
            self.place = f"{self._builder.where}: {name}"

    def measured(self, width: Any, height: Any) -> None:
        """The size that the file states, if it states one."""
        self.size = text_size(width, height, self.place)

    @property
    def key(self) -> str:
        """The key of the next word."""
        return f"{len(self.words) + 1:04d}"

    @property
    def next_place(self) -> str:
        """How messages name the next word."""
        return f"{self.place}: word {self.key}"

    def word(
        self,
        points: list[Any],
        text: Any = None,
        ignore: bool = False,
        language: Any = None,
        orientation: Any = None,
        key: str | None = None,
    ) -> None:
        """Add a word; one whose text marks it as illegible is ignored."""
        number = self.key if key is None else key
        self.words.append(Word(number, points, text, ignore or text == IGNORED, language, orientation))


def lines_reader(parse: Callable[[str, str], tuple[Word, ...]]) -> Callable[[PageBuilder], None]:
    """A reader of a format with one file per image, whose `parse` gives the words of a text."""

    def read(pages: PageBuilder) -> None:
        with pages.page() as page:
            page.of_label()
            unit = "word" if looks_like_xml(pages.text) else "line"
            for word in parse(pages.text, pages.where):
                if len(word.points) == 1:
                    # There is nothing in a single point to draw or to ignore.
                    place = f"{pages.where}, {unit} {int(word.key)}"
                    pages.notes.append(f"{place}: skipped, it has one point, and a polygon needs three")
                else:
                    page.words.append(word)

    return read


def parse_json(text: str, where: str) -> Any:
    """The value of a JSON text."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise AnnotationError(
            f"{where}: not valid JSON ({error}). Export it again, or set annotation_format to its format",
            value=str(error),
        ) from error

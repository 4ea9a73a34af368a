"""The structure of an HTML page: closed tags, headings, and what a screen reader calls its parts."""

from dataclasses import dataclass
from html.parser import HTMLParser

VOID = {"br", "input", "link", "meta", "meter", "wbr"}
ROLES = {
    **dict.fromkeys(("h1", "h2", "h3"), "heading"),
    **{
        "a": "link",
        "button": "button",
        "summary": "button",
        "progress": "progressbar",
        "select": "combobox",
        "dialog": "dialog",
    },
    **{"checkbox": "checkbox", "file": "button", "range": "slider", "search": "searchbox"},
}
CONTROLS = {"button", "checkbox", "combobox", "link", "searchbox", "slider"}


@dataclass
class Element:
    tag: str
    attributes: dict[str, str | None]
    label: "Element | None"
    """The label around it."""
    text: str = ""

    @property
    def role(self) -> str | None:
        if self.tag == "th":
            return "columnheader" if self.attributes.get("scope") == "col" else "rowheader"
        kind = self.attributes.get("type") if self.tag == "input" else self.tag
        return self.attributes.get("role") or ROLES.get(kind or "")


class Markup(HTMLParser):
    """A page whose tags are all closed in their turn."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements: list[Element] = []
        self.open: list[Element] = []
        self.feed(page)
        assert not self.open

    def check(self) -> None:
        """One title and one heading above all, ids that differ, and names for controls, pictures and what scrolls."""
        assert [element.tag for element in self.elements].count("h1") == 1
        ids = [element.attributes["id"] for element in self.elements if "id" in element.attributes]
        assert len(ids) == len(set(ids))
        assert all(name for role, name in self.named if role in {*CONTROLS, "img", "region", "dialog"})
        assert all("scope" in element.attributes for element in self.elements if element.tag == "th")

    @property
    def headings(self) -> list[str]:
        """Of the sections."""
        return [element.text for element in self.elements if element.tag == "h2"]

    @property
    def named(self) -> list[tuple[str, str]]:
        """Role and name of everything that has a role."""
        return [(element.role, self._name(element)) for element in self.elements if element.role]

    def _name(self, element: Element) -> str:
        own, above = element.attributes.get("id"), element.attributes.get("aria-labelledby")
        names = [one.text for one in self.elements if above and one.attributes.get("id") == above]
        names += [one.text for one in self.elements if own and one.attributes.get("for") == own and one.tag == "label"]
        names += [element.label.text] if element.label else []
        return " ".join(next(filter(None, (element.attributes.get("aria-label"), *names, element.text)), "").split())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        label = next((one for one in reversed(self.open) if one.tag == "label"), None)
        self.elements.append(Element(tag, dict(attrs), label))
        if tag not in VOID:
            self.open.append(self.elements[-1])

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self.open.pop().tag == tag

    def handle_data(self, data: str) -> None:
        for element in self.open:
            element.text += data

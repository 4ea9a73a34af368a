"""code_form: what code does and needs, without what only people read."""

import textwrap
from types import CodeType

import pytest

from ocr.pipeline.reach.code_form import CodeForm, Import, code_form
from ocr.pipeline.reach.wording import wording


def form_of(body: str) -> CodeForm:
    text = "def work(page, side=3):\n" + textwrap.indent(textwrap.dedent(body).strip("\n"), "    ")
    module = compile(text, "work.py", "exec")
    (code,) = [constant for constant in module.co_consts if isinstance(constant, CodeType)]
    return code_form(code)


SAME = {
    "a docstring": ("return page", '"""Text."""\nreturn page'),
    "a longer docstring": ('"""Text."""\nreturn None', '"""Other text."""\nreturn None'),
    "blank lines and remarks": ("page += 1\nreturn page", "page += 1\n\n# Text.\n\nreturn page"),
    "a local name": ("a = page\nreturn a", "b = page\nreturn b"),
    "pass": ("return page", "pass\nreturn page"),
    "more values in an error": ('raise Odd("a")', 'raise Odd(f"a {page!r} of {len(page):>4}, {here()}")'),
    "an error put together": ('raise Odd("a", 7)', 'raise Odd(", ".join(str(one) for one in page), 7)'),
    "an error over lines": ('raise Odd("a") from page', 'raise Odd(\n    "a"\n    f"b {page}"\n) from page'),
    "an assertion": ("assert page", 'assert page, f"no {page}"'),
    "a longer text behind a jump": (
        'while page:\n    log.info("a")\n    page -= 1',
        f'while page:\n    log.info("a{" {page}" * 2}" + f"{"".join("{page}" for _ in range(200))}")\n    page -= 1',
    ),
    "a nested docstring": ("def f():\n    return 1\nreturn f", 'def f():\n    """Text."""\n    return 1\nreturn f'),
    "a nested class's docstring": ("class A:\n    a = 1\nreturn A", 'class A:\n    """Text."""\n    a = 1\nreturn A'),
}


@pytest.mark.parametrize(("one", "other"), SAME.values(), ids=SAME)
def test_what_only_people_read_does_not_count(one, other):
    assert form_of(one) == form_of(other)


DIFFERENT = {
    "what a handler guards": (
        "try:\n    a()\nexcept E:\n    b()\nelse:\n    c()",
        "try:\n    a()\n    c()\nexcept E:\n    b()",
    ),
    "the branch that is taken": ("if page:\n    a()\nelse:\n    b()", "if page:\n    b()\nelse:\n    a()"),
    "a loop's end": ("for _ in page:\n    a()\n    b()", "for _ in page:\n    a()\nb()"),
    "a text that is returned": ('return "a"', 'return "b"'),
    "a text that is compared in an assertion": ('assert page == "a", "text"', 'assert page == "b", "text"'),
    "a text that chooses what is raised": ('raise kinds["a"]("text")', 'raise kinds["b"]("text")'),
    "a text in a cause": ('raise Odd("text") from cause("a")', 'raise Odd("text") from cause("b")'),
    "a text given to another function": ('report("a")', 'report("b")'),
    "a constant in a nested function": ("return lambda: 1", "return lambda: 2"),
    "a member of a set": ('return page in {"a", "b"}', 'return page in {"a", "c"}'),
    "a name": ("return a", "return b"),
    "an attribute": ("return page.a", "return page.b"),
    "one and true": ("return 1", "return True"),
    "which local name": ("a = b = page\nreturn a", "a = b = page\nreturn b"),
}


@pytest.mark.parametrize(("one", "other"), DIFFERENT.values(), ids=DIFFERENT)
def test_what_code_does_counts(one, other):
    assert form_of(one).digest != form_of(other).digest


def test_names_and_imports_are_told_also_of_nested_code_but_not_of_messages():
    form = form_of(
        """
        import a.b
        from . import c
        from ..d import e as f
        if page:
            raise Odd(f"{unused.name}")
        return [np.linalg.inv(row) for row in TABLE]
        """
    )
    assert set(form.names) == {("Odd",), ("np", "linalg", "inv"), ("TABLE",)}
    assert form.imports == (Import("a.b", 0, ()), Import("", 1, ("c",)), Import("d", 2, ("e",)))


def test_names_beyond_the_first_256_are_resolved():
    many = "\n".join(f"name_{number}" for number in range(300))
    assert form_of(f"{many}\nreturn last").names[-1] == ("last",)
    assert form_of(f"{many}\nreturn last") != form_of(f"{many}\nreturn other")


def test_code_without_columns_counts_with_its_wording():
    from ocr.pipeline.reach.code_form import _instructions

    instructions = _instructions(compile('raise Odd("a")', "work.py", "exec"))
    assert not wording(instructions, [(1, 1, None, None)] * 100)

"""The examples in docstrings give what they say."""

import doctest
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
# Only these modules are imported: the others would load optional libraries for nothing.
MODULES = sorted(
    ".".join(file.relative_to(ROOT).with_suffix("").parts)
    for file in (ROOT / "ocr").rglob("*.py")
    if ">>> " in file.read_text()
)


@pytest.mark.parametrize("module", MODULES)
def test_the_examples_of_a_module_give_what_they_say(module):
    found = doctest.testmod(import_module(module.removesuffix(".__init__")))
    assert found.attempted
    assert not found.failed


def test_there_are_examples_to_run():
    assert len(MODULES) > 20

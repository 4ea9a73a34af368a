"""`make check` finds what it looks for: each check gets something that is wrong."""

import documents
import house_rules
import pytest


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("`ocr.pipeline.nowhere`", "ocr.pipeline.nowhere does not exist"),
        ("```python\nfrom ocr import Nothing\n```\n", "Nothing does not exist"),
    ],
)
def test_a_name_that_the_package_lacks_is_a_problem(text, problem):
    assert [line for line in documents.wrong_names(text) if problem in line]
    assert not [*documents.wrong_names("`ocr.pipeline.decode.Decode`, ocr/pipeline/decode.py")]


def test_a_file_that_does_not_exist_is_a_problem():
    assert [*documents.wrong_files("see ocr/pipeline/decode.py and ocr/nowhere.py")] == [
        "ocr/nowhere.py does not exist"
    ]


def test_a_link_needs_its_file_and_its_heading(tmp_path):
    page = tmp_path / "a.md"
    page.write_text("# The `first` part\n```\n# no heading\n```\n")
    text = "[a](a.md) [b](a.md#the-first-part) [c](b.md) [d](#no-heading) [e](https://example.org/x)"
    assert [*documents.wrong_links(page, text)] == [
        "the link b.md leads nowhere",
        "the link #no-heading: a.md has no such heading",
    ]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("`make nothing`", "no such target"),
        ("`ocr trian`", "no command trian"),
        ("    ocr synth out --pages-per-day 5\n", "no option --pages-per-day"),
        ("```bash\npython runners/train.py \\\n    data.no_such_key=1\n```\n", "no_such_key"),
        ("```console\n$ ocr train trainer.max_epoch=1\n```\n", "max_epoch"),
        ("`python scripts/nothing.py`", "no such file"),
        ("`python benchmarks/run.py epochz --data DIR`", "no benchmark epochz"),
        ("`python benchmarks/run.py epochs --dater DIR`", "no option --dater"),
    ],
)
def test_a_command_that_does_not_run_as_written_is_a_problem(text, problem):
    (found,) = documents.wrong_commands(text)
    assert problem in found


@pytest.mark.parametrize(
    "text",
    [
        "`make test` and `ocr`",
        "    ocr synth out --train 5   # --no-such-option\n",
        "```console\n$ ocr train trainer.max_epochs=1 | tail -3\nocr nothing of this output counts\n```\n",
        "the ocr package",
    ],
)
def test_a_command_that_runs_as_written_is_none(text):
    assert not [*documents.wrong_commands(text)]


@pytest.mark.parametrize(
    ("check", "text", "problem"),
    [
        (lambda code: house_rules.wrong_imports("pipeline", code), "from ocr.cache import x", "imports ocr.cache"),
        (lambda code: house_rules.wrong_imports("loader", code), "def f():\n    import ocr.cache", "imports ocr.cache"),
        (house_rules.wrong_source, "import numpy", "no docstring"),
        (house_rules.wrong_source, "'''x'''\nfrom ray.data import read", "imports ray"),
        (house_rules.markup_in_code, "'<svg viewBox=\"0 0 1 1\">'", "<svg"),
        (house_rules.markup_in_code, "f'<style>{rules}</style>'", "<style"),
        (house_rules.markup_in_code, "from html import escape", "from html import"),
        (house_rules.unexplained_settings, "a:\n  b: 5\n", "b: 5 has no comment"),
        (house_rules.unexplained_settings, "a: 5  # as above\n", "sends the reader elsewhere"),
        (
            house_rules.held_wording,
            "pytest.raises((DataError, OSError), match='x')",
            "matches the wording of DataError OSError",
        ),
    ],
)
def test_a_broken_rule_is_a_problem(check, text, problem):
    (found,) = check(text)
    assert problem in found


def test_a_kept_rule_is_none():
    assert not [*house_rules.wrong_imports("cache", "from ocr.pipeline import sample\nfrom ocr.cache import items")]
    assert not [*house_rules.wrong_source("'''x'''\nimport numpy\ndef f():\n    import ray")]
    assert not [*house_rules.unexplained_settings("a:\n  b: 5  # pages\n  c: ${d}\n")]
    assert not [*house_rules.held_wording("pytest.raises(ValueError, match='x')\npytest.raises(DataError)")]


def test_an_example_in_a_docstring_that_gives_something_else_is_a_problem(tmp_path, monkeypatch, capsys):
    (tmp_path / "ocr").mkdir()
    (tmp_path / "ocr" / "wrong_example.py").write_text('"""\n>>> 1 + 1\n3\n"""\n')
    monkeypatch.setattr(house_rules.importlib, "import_module", lambda name: _module(tmp_path, name))
    assert [*house_rules.wrong_doctests(tmp_path)] == ["ocr/wrong_example.py: 1 of 1 examples"]


def _module(root, name):
    import types

    made = types.ModuleType(name)
    exec((root / f"{name.replace('.', '/')}.py").read_text(), made.__dict__)
    return made

"""`make transcripts` writes what commands print, and `make check` notices what was edited by hand."""

import pytest
from documents import transcripts

PAGE = """before
<!-- transcript: last=2 -->
```console
$ printf 'one  \\ntwo\\nthree\\n'
$ echo a \\
    b
old output
```
<!-- transcript: end -->
after
"""


@pytest.fixture(autouse=True)
def work(tmp_path, monkeypatch):
    monkeypatch.setattr(transcripts, "WORK", tmp_path)


def written(tmp_path, text=PAGE):
    page = tmp_path / "page.md"
    page.write_text(text)
    page.write_text(transcripts.rewritten(page))
    return page.read_text()


def test_commands_are_followed_by_what_they_print_now(tmp_path):
    text = written(tmp_path)
    shown = "$ printf 'one  \\ntwo\\nthree\\n'\n...\ntwo\nthree\n$ echo a \\\n    b\na b\n```"
    assert shown in text
    assert "old output" not in text
    assert text.startswith("before\n")
    assert text.endswith("after\n")
    assert written(tmp_path, text) == text


def test_folders_and_progress_bars_do_not_stand_in_a_transcript(tmp_path):
    bar = """python3 -c 'print("\\u2501" * 20, "5/5")'"""
    text = written(tmp_path, PAGE.replace("echo a \\\n    b", f"{bar}; pwd; echo $PWD/file"))
    assert "━" not in text
    assert "\n.\nfile\n" in text


def test_a_command_that_fails_ends_the_program(tmp_path):
    with pytest.raises(SystemExit, match="failed: exit 3"):
        written(tmp_path, PAGE.replace("echo a \\\n    b", "exit 3"))


def test_what_was_edited_by_hand_is_a_problem(tmp_path):
    text = written(tmp_path)
    assert not [*transcripts.problems(text)]
    assert len([*transcripts.problems(text.replace("three\n$", "four\n$"))]) == 1
    assert len([*transcripts.problems(PAGE)]) == 1
    assert len([*transcripts.problems("```console\n$ ocr train\nloss 5\n```\n")]) == 1


def test_a_picture_is_drawn_by_its_command(tmp_path):
    text = written(tmp_path, "<!-- picture: echo drawn > PICTURE -->\n![A page](page.png)\n")
    assert (tmp_path / "page.png").read_text() == "drawn\n"
    assert text == "<!-- picture: echo drawn > PICTURE -->\n![A page](page.png)\n"

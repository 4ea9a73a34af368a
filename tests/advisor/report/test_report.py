"""The report as text: what it shows of which result, and that nothing in a result can break it."""

import copy
import itertools
import json
import re
import shlex
from html import escape, unescape
from typing import Any
from xml.etree import ElementTree

import pytest
import sample_results as samples
import typer
from markup import Markup
from rejection import rejects
from typer.testing import CliRunner

from ocr.advisor.commands.report import report
from ocr.advisor.report.html_page import render_report
from ocr.advisor.report.result_file import write_result
from ocr.errors import ConfigError, DataError

KINDS = {"profile": samples.profile, "bench": samples.bench, "advice": samples.advice}


def all_of_them() -> list[dict[str, Any]]:
    return [make() for make in KINDS.values()]


def run(*arguments: object) -> Any:
    app = typer.Typer()
    app.command()(report)
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.mark.parametrize("kinds", [*itertools.combinations(KINDS, 1), *itertools.combinations(KINDS, 2), (*KINDS,)])
def test_a_report_of_any_results_is_sound_html_that_needs_nothing_else(kinds):
    page = render_report([KINDS[kind]() for kind in kinds])
    Markup(page)
    assert not re.search(r"<script|<link|<img|\bsrc=|@import|url\(|https?:", page)
    assert '<html lang="en">' in page
    assert "width=device-width" in page
    assert "prefers-color-scheme: dark" in page
    assert "@media print" in page


def test_text_of_results_is_escaped_wherever_it_is_shown():
    page = render_report(all_of_them())
    assert samples.AWKWARD not in page
    assert page.count(escape(samples.AWKWARD)) > 5
    assert samples.PLACE not in page
    assert escape(samples.PLACE) in page
    assert escape("& try <again>") in page


def test_a_section_is_there_only_where_its_data_is():
    time, threads, helps = "Where the time goes", "One epoch by thread", "What would help"
    truth, configurations, again = "Predicted against measured", "Configurations side by side", "Commands"
    headings = {kind: Markup(render_report([make()])).headings for kind, make in KINDS.items()}
    assert headings["profile"] == [time, "Machine", again]
    assert headings["bench"] == [configurations, "Machine", again]
    assert headings["advice"] == [time, threads, helps, truth, "Cache and machine", again]
    every = Markup(render_report(all_of_them())).headings
    assert every == [time, threads, helps, truth, configurations, "Cache and machine", again]
    unverified = samples.advice() | {"verified": [], "cache": [], "timeline": []}
    assert Markup(render_report([unverified])).headings == [time, helps, "Machine", again]


def test_the_verdict_is_the_first_sentence_and_that_of_the_advice_before_others():
    for results in ([samples.advice()], all_of_them()):
        page = render_report(results)
        assert page.index("the model waits for data 61 %") < page.index("<h2>")
        assert '<p class="verdict wrong">' in page
    assert "47 % of the data path" in render_report([samples.profile()]).split("<h2>")[0]
    bench = unescape(render_report([samples.bench()]).split("<h2>")[0])
    assert "tensor cache is the fastest, with 2.20 ms per epoch: 755 × as fast as disk, which takes 1.66 s" in bench


def test_a_model_that_is_the_bottleneck_gets_no_remedy_to_try():
    advice = samples.advice()
    advice["present"] |= {"sentence": "The model is the bottleneck, nothing here will help.", "wait_share": 0.01}
    for remedy in advice["remedies"]:
        remedy["gain"] = 1.0
    page = render_report([advice])
    assert '<p class="verdict ok">The model is the bottleneck, nothing here will help.</p>' in page
    assert "Try first" not in page
    assert "Try first" in render_report([samples.advice()])


def test_the_remedy_to_try_first_needs_nothing_prepared_where_there_is_such_a_one():
    advice = samples.advice()
    advice["remedies"] = advice["remedies"][2:4]
    first = render_report([advice]).split("Try first")[1].split("</div>")[0]
    assert "image cache: Decoding is done once." in first
    advice["remedies"] = advice["remedies"][:1]
    first = render_report([advice]).split("Try first")[1].split("</div>")[0]
    assert first.index("ocr convert DIR shards --ready") < first.index("ocr train")


def test_every_remedy_is_told_with_gain_costs_and_reason():
    page = unescape(render_report([samples.advice()]))
    table = page[page.index("<caption>Remedies") :].split("</table>")[0]
    lines = re.findall(r"<tr>.*?</tr>", table, flags=re.DOTALL)[1:]
    assert len(lines) == len(samples.remedies()) == 14
    cells = re.findall(r"<td[^>]*>(.*?)</td>", lines[2])
    reason = "Shards hold letterboxed pages; writing takes time."
    assert cells == ["2.0 ×", "103", "3.40 s", "21.0 s", "none", "2.0 GB", "3.5 epochs", reason]
    assert [re.findall(r"<td[^>]*>(.*?)</td>", lines[n])[6] for n in (13, 4, 1)] == ["never", "at once", "1 epoch"]


def test_runs_and_memory_are_told_and_what_changes_the_hmean_is_not_tried_first():
    advice = samples.advice()
    run = {"run_s": 7000.0, "memory_bytes": 3_000_000_000}
    advice["present"] |= run
    advice["left_out"] = {"compiled model": "no <compiler>"}
    for remedy in advice["remedies"]:
        remedy |= run | {"hmean": "same", "fits": True}
    advice["remedies"][0] |= {"hmean": "not known"}
    advice["remedies"][-1] |= {"fits": False, "gain": None}
    page = unescape(render_report([advice]))
    table = page[page.index("<caption>Remedies") :].split("</table>")[0]
    lines = re.findall(r"<tr>.*?</tr>", table, flags=re.DOTALL)[1:]
    first, last = (re.findall(r"<td[^>]*>(.*?)</td>", lines[n]) for n in (0, -1))
    assert first[4:7] == ["1 h 57 min", "3.0 GB", "not known"]
    assert last[0] == "does not fit"
    assert "Predicted run" in page
    assert "compiled model: no <compiler>" in page
    assert f"{advice['remedies'][0]['name']}:" not in page.split("Try first")[1].split("</div>")[0]


def test_the_commands_can_be_copied_into_a_shell():
    commands = [unescape(text) for text in re.findall(r"<pre[^>]*><code>(.*?)</code>", render_report(all_of_them()))]
    advise, profile, bench, train = map(shlex.split, commands[-4:])
    assert [command[1] for command in (advise, profile, bench)] == ["advise", "profile", "bench"]
    assert train[:3] == ["ocr", "train", f"dataset_base_path={samples.PLACE}"]
    assert train[3:] == samples.remedies()[0]["overrides"]


def test_a_machine_is_told_once_and_another_one_beside_it():
    other = samples.profile() | {"machine": samples.MACHINE | {"processor": "Another"}}
    freer = samples.bench() | {"machine": samples.MACHINE | {"free_memory_bytes": 1}}
    assert render_report([samples.profile(), freer]).count("AMD EPYC") == 1
    page = render_report([samples.profile(), other])
    assert "compare figures of the same machine only" in page
    assert page.count("Machine of profile") == 2


@pytest.mark.parametrize("kind", KINDS)
def test_a_result_with_nothing_but_its_head_is_shown(kind):
    page = render_report([samples.bare(kind)])
    Markup(page)
    assert '<p class="verdict' in page
    assert not re.search(r"None|nan|<h3></h3>", page.split("</style>")[1])


def paths(value: Any, way: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place in a document."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [place for key, item in inner for place in ((*way, key), *paths(item, (*way, key)))]


JUNK = (None, "<b>", -3.5, [], {}, [{}], True, 1e300, "\udcff\x00\n")


# A third of the damages at each place is enough to meet every kind of place with every kind of damage.
@pytest.mark.parametrize("step", [3, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("kind", KINDS)
def test_no_damage_of_a_result_breaks_the_report(kind, step):
    whole = KINDS[kind]()
    # Of the many stages or remedies the first stands for all.
    places = {tuple(0 if isinstance(key, int) else key for key in place): place for place in reversed(paths(whole))}
    for number, place in enumerate(place for place in places.values() if place != ("kind",)):
        for junk in JUNK[number % step :: step]:
            damaged = copy.deepcopy(whole)
            at = damaged
            for key in place[:-1]:
                at = at[key]
            at[place[-1]] = junk
            page = render_report([damaged])
            assert "<b>" not in page.replace("<p><b>", "").replace('source"><b>', ""), place
            page.encode()


@pytest.mark.parametrize("make", KINDS.values())
def test_every_chart_is_sound_svg_with_title_description_and_a_unit(make):
    pictures = re.findall(r"<svg.*?</svg>", render_report([make()]))
    assert pictures
    names = set()
    for picture in pictures:
        root = ElementTree.fromstring(picture)
        title, text = root.find("title"), root.find("desc")
        assert title is not None
        assert text is not None
        assert text.text
        assert (root.get("aria-labelledby"), root.get("aria-describedby")) == (title.get("id"), text.get("id"))
        assert re.search(r"seconds|minutes|hours", root.find("text[@class='unit']").text)
        names |= {title.get("id"), text.get("id")}
    assert len(names) == 2 * len(pictures)


def test_screen_readers_find_headings_tables_and_pictures_with_names():
    page = render_report(all_of_them())
    named = Markup(page).named
    assert ("heading", "Where the time goes") in named
    assert ("columnheader", "samples/s") in named
    assert ("region", "Remedies, best first") in named
    # A chart is drawn for phones and for desks, under one name.
    pictures = {name for role, name in named if role == "img"}
    assert "Stages of the data path" in pictures
    assert len(pictures) == page.count("<figure") == 12
    assert all(pictures)


def test_the_command_draws_several_files_as_one_page(tmp_path):
    files = [tmp_path / f"{kind} <1>.json" for kind in KINDS]
    for file, make in zip(files, KINDS.values(), strict=True):
        write_result(make(), file)
    out = tmp_path / "new folder" / "report.html"
    done = run(*files, "--out", out)
    assert done.exit_code == 0, done.output
    assert "written:" in done.stdout
    results = [json.loads(file.read_text()) for file in files]
    assert out.read_text() == render_report(results)
    assert list(out.parent.iterdir()) == [out]


def test_the_command_refuses_what_is_no_result_and_to_overwrite_one(tmp_path):
    other, result = tmp_path / "other.json", tmp_path / "result.json"
    other.write_text('{"kind": "shopping list"}')
    write_result(samples.profile(), result)
    before = result.read_bytes()
    with rejects(DataError, path=other):
        raise run(other, "--out", tmp_path / "a.html").exception
    same = tmp_path / "x" / ".." / "result.json"
    with rejects(ConfigError, setting="--out", value=same):
        raise run(result, "--out", same).exception
    assert result.read_bytes() == before
    assert not (tmp_path / "a.html").exists()

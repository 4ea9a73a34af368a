"""cache: what a sample depends on invalidates it: files, words, parameters, code and libraries. Nothing else does."""

import json
import os
import shutil
import sys
import time
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from cache_worker import (
    fixed,
    open_pages,
    read_annotation,
    read_right,
    rename_a_page,
    repaint,
    worker,
    write_annotation,
    write_pages,
)
from PIL import Image
from sameness import assert_same

from ocr.datasets import DBTransforms
from ocr.pipeline.device import Normalize
from ocr.pipeline.prefix import Letterbox
from ocr.pipeline.sample import Sample
from ocr.pipeline.stage import FixedStage
from ocr.pipeline.targets import Targets

pytestmark = pytest.mark.usefixtures("each_form")
ALL, NONE = (8, 0, 0), (0, 8, 0)
HIDDEN = "HIDDEN_GAIN_OF_A_STAGE"


@pytest.fixture
def pages(tmp_path: Path) -> Path:
    return write_pages(tmp_path / "pages")


@pytest.fixture
def cache(pages: Path, tmp_path: Path) -> Path:
    assert read_right(pages, tmp_path / "cache") == NONE
    return tmp_path / "cache"


def encode_anew(pages: Path) -> None:
    with Image.open(pages / "images" / "00.jpg") as page:
        page.save(pages / "images" / "00.jpg", quality=30)


def paint_over(pages: Path) -> None:
    repaint(pages / "images" / "01.bmp")


def change_a_word(**change: Any) -> Any:
    def edit(pages: Path) -> None:
        annotation = read_annotation(pages)
        annotation["03.jpg"]["words"]["0001"] |= change
        write_annotation(pages, annotation)

    return edit


@pytest.mark.parametrize(
    "edit",
    [
        encode_anew,
        paint_over,
        change_a_word(points=[[2, 2], [30, 2], [30, 30.25], [2, 30]]),
        change_a_word(transcription="another"),
        change_a_word(transcription=None),
        change_a_word(illegibility=True),
    ],
    ids=["encoded anew", "as large and old as before", "polygon", "text", "no text", "ignored"],
)
def test_an_edit_of_one_page_invalidates_that_page_only(pages, cache, edit):
    edit(pages)
    assert read_right(pages, cache) == (7, 0, 1)
    assert read_right(pages, cache) == ALL


def touch(pages: Path) -> Path:
    for path in pages.rglob("*.*"):
        os.utime(path, (1, 1))
    return pages


def move(pages: Path) -> Path:
    return pages.rename(pages.with_name("moved"))


def copy(pages: Path) -> Path:
    return Path(shutil.copytree(pages, pages.with_name("copy"), copy_function=shutil.copyfile))


def print_prettily(pages: Path) -> Path:
    text = json.dumps(json.loads((pages / "pages.json").read_text()), indent=4)
    (pages / "pages.json").write_text(text)
    return pages


@pytest.mark.parametrize("change", [touch, move, copy, print_prettily])
def test_what_changes_no_sample_invalidates_nothing(pages, cache, change):
    changed = change(pages)
    assert read_right(changed, cache) == ALL
    assert read_right(changed, cache) == ALL


def test_a_page_that_is_added_costs_that_page_only(pages, cache):
    shutil.copy(pages / "images" / "02.png", pages / "images" / "added.png")
    write_annotation(pages, read_annotation(pages) | {"added.png": {"words": {}}})
    assert read_right(pages, cache) == (8, 1, 0)


def test_two_datasets_with_the_same_names_have_caches_of_their_own(pages, cache, tmp_path):
    other = write_pages(tmp_path / "other", seed=1)
    assert read_right(other, cache) == NONE
    sizes = {path: path.stat().st_size for path in cache.glob("*/data")}
    for _ in range(2):
        assert read_right(pages, cache) == ALL
        assert read_right(other, cache) == ALL
    assert sizes == {path: path.stat().st_size for path in cache.glob("*/data")}


def test_a_page_edited_back_and_forth_is_never_stale(pages, cache):
    versions = []
    for _ in range(2):
        versions.append(open_pages(pages)[1])
        paint_over(pages)
    for turn in range(3):
        running = open_pages(pages, cache)
        assert_same(running[1], versions[turn % 2])
        paint_over(pages)
        assert read_right(pages, cache) == (7, 0, 1)
        # Opened before the edit, it has one of the two pages, and replaces nothing that was made after.
        assert any(running[1]["image"].equal(version["image"]) for version in versions)
        assert read_right(pages, cache) == ALL


@pytest.mark.parametrize("seconds", [-3600, 10**9])
def test_a_clock_that_jumps_makes_no_page_stale(pages, cache, monkeypatch, seconds):
    now, now_ns = time.time, time.time_ns
    for attempt in range(2):
        jump = seconds * (attempt % 2)
        monkeypatch.setattr(time, "time", lambda jump=jump: now() + jump)
        monkeypatch.setattr(time, "time_ns", lambda jump=jump: now_ns() + jump * 10**9)
        paint_over(pages)
        os.utime(pages / "images" / "02.png", (now() + seconds, now() + seconds))
        assert read_right(pages, cache) == (7, 0, 1)
        assert read_right(pages, cache) == ALL


@dataclass(frozen=True)
class Brighten(FixedStage):
    """Depends on something that its key cannot know."""

    def __call__(self, sample: Sample) -> Sample:
        return replace(sample, image=sample.image + int(os.environ.get(HIDDEN, "0")))


@pytest.mark.parametrize("siblings", [False, True], ids=["alone", "with another cache of the same stages"])
def test_a_stage_with_a_hidden_dependence_is_caught_and_the_cache_made_anew(
    pages, tmp_path, monkeypatch, caplog, siblings
):
    cache, transform = tmp_path / "cache", fixed(Brighten())
    read_right(pages, cache, transform=transform)
    if siblings:
        rename_a_page(copy(pages))
        read_right(pages.with_name("copy"), cache, transform=transform)
    monkeypatch.setenv(HIDDEN, "1")
    assert not caplog.records
    assert read_right(pages, cache, transform=transform) == NONE
    (record,) = caplog.records
    assert str(cache) in record.getMessage()
    caplog.clear()
    assert read_right(pages, cache, transform=transform) == ALL
    assert not caplog.records


def test_a_new_list_of_pages_takes_nothing_stale_from_another_cache(pages, tmp_path, monkeypatch):
    transform = fixed(Brighten())
    read_right(pages, tmp_path / "cache", transform=transform)
    monkeypatch.setenv(HIDDEN, "1")
    read_right(rename_a_page(pages), tmp_path / "cache", transform=transform)


def test_a_stage_that_cannot_be_hashed_can_be_cached(pages, tmp_path):
    @dataclass
    class Same(FixedStage):
        def __call__(self, sample: Sample) -> Sample:
            return sample

    assert read_right(pages, tmp_path / "cache", transform=fixed(Same())) == NONE


def test_a_page_that_is_renamed_costs_that_page_only(pages, cache):
    assert read_right(rename_a_page(pages), cache) == (7, 1, 0)


@dataclass(frozen=True)
class Sign(FixedStage):
    """Depends on the name of the file."""

    def __call__(self, sample: Sample) -> Sample:
        return replace(sample, image=sample.image + len(sample.filename))


def test_a_stage_that_uses_the_name_of_the_file_is_given_nothing_made_under_another_name(pages, tmp_path):
    read_right(pages, tmp_path / "cache", transform=fixed(Sign()))
    assert read_right(rename_a_page(pages), tmp_path / "cache", transform=fixed(Sign())) == (7, 1, 0)


@pytest.mark.parametrize(
    "settings",
    [
        {"transform": fixed(size=72)},
        {"transform": fixed(normalize="device")},
        {"transform": DBTransforms([Letterbox(64), Normalize(mean=(0.5, 0.5, 0.5))])},
        {"transform": DBTransforms([Letterbox(64, interpolation="area"), Normalize()])},
        {"targets": Targets(shrink_ratio=0.5)},
        {"image_loading_config": {"scaled": "off"}},
        {"cache": "prefix"},
    ],
    ids=str,
)
@pytest.mark.raw_only
def test_other_parameters_have_a_cache_of_their_own(pages, cache, settings):
    for expected in (NONE, ALL):
        assert read_right(pages, cache, **settings) == expected
        assert read_right(pages, cache) == ALL


@pytest.mark.parametrize(
    ("settings", "is_shared"),
    [
        ({"transform": fixed(normalize="device")}, True),
        ({"transform": DBTransforms([Letterbox(64), Normalize(mean=(0.5, 0.5, 0.5))])}, True),
        ({"targets": Targets(shrink_ratio=0.5)}, True),
        ({"cache": "prefix"}, True),
        ({"prenormalize_images": True}, True),
        ({"transform": fixed(size=72)}, False),
        ({"transform": DBTransforms([Letterbox(64, interpolation="area"), Normalize()])}, False),
        ({"cache_form": "raw"}, False),
    ],
    ids=str,
)
def test_a_dense_cache_serves_every_normalisation_and_all_maps(pages, tmp_path, settings, is_shared):
    assert read_right(pages, tmp_path / "cache", cache_form="dense") == NONE
    assert read_right(pages, tmp_path / "cache", **({"cache_form": "dense"} | settings)) == (ALL if is_shared else NONE)


def test_maps_that_are_not_cached_have_no_part_in_the_key(pages, tmp_path):
    read_right(pages, tmp_path / "cache", cache="prefix")
    assert read_right(pages, tmp_path / "cache", cache="prefix", targets=Targets(shrink_ratio=0.5)) == ALL


WHAT_THE_STAGES_MAKE = {"transform": fixed(normalize="device"), "cache": "off"}


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"preload_maps": True}, {"cache": "batch"}),
        ({"preload_maps": True}, {"preload_maps": True, "preload_images": True}),
    ],
    ids=["maps, or everything", "maps, or pages too"],
)
def test_the_same_stages_cut_elsewhere_have_a_cache_of_their_own(pages, tmp_path, one, other):
    for settings in (one, other):
        read_right(pages, tmp_path / "cache", **WHAT_THE_STAGES_MAKE | settings)
        assert read_right(pages, tmp_path / "cache", **WHAT_THE_STAGES_MAKE | settings) == ALL
    assert len({path.parent.name.split("-")[0] for path in (tmp_path / "cache").glob("*/data")}) == 2


USES_A_LIBRARY = """
from dataclasses import dataclass, replace
from ocr.pipeline.stage import FixedStage

@dataclass(frozen=True)
class Lighten(FixedStage):
    def __call__(self, sample):
        from light import lighter
        return replace(sample, image=lighter(sample.image))
"""


def read_with_library(folder: str, kept_in: str, packages: str) -> Any:
    sys.path[:0] = [packages, f"{packages}/site-packages"]
    return read_right(folder, kept_in, transform=fixed(import_module("of_a_user").Lighten()))


def test_another_version_of_any_library_that_a_stage_uses_has_a_cache_of_its_own(pages, tmp_path):
    site = tmp_path / "packages" / "site-packages"
    site.mkdir(parents=True)
    (site.parent / "of_a_user.py").write_text(USES_A_LIBRARY)
    (site / "light.py").write_text("from dusk import amount\n\ndef lighter(image):\n    return image + amount\n")
    (site / "dusk.py").write_text("amount = 1\n")
    for light, dusk, expected in (("1", "1", NONE), ("2", "1", NONE), ("2", "2", NONE), ("2", "1", ALL)):
        for folder in site.glob("*.dist-info"):
            shutil.rmtree(folder)
        install(site, "light", light, "Requires-Dist: of-dusk (>=1)\nRequires-Dist: not-there; extra == 'more'\n")
        install(site, "of_dusk", dusk, "", module="dusk")
        arguments = {"folder": pages, "kept_in": tmp_path / "cache", "packages": site.parent}
        assert tuple(worker().call(read_with_library, **arguments)["result"]) == expected


def install(site: Path, name: str, version: str, requirements: str, module: str = "light") -> None:
    """Describe a distribution as pip does."""
    (site / f"{name}-{version}.dist-info").mkdir()
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{requirements}\n"
    (site / f"{name}-{version}.dist-info" / "METADATA").write_text(metadata)
    (site / f"{name}-{version}.dist-info" / "RECORD").write_text(f"{module}.py,sha256=0,0\n")


STAGE = """
from dataclasses import dataclass, replace
from ocr.pipeline.stage import FixedStage
from edited.amount import AMOUNT

@dataclass(frozen=True)
class Darken(FixedStage):
    def __call__(self, sample):
        return replace(sample, image=sample.image // AMOUNT)
"""


def read_with_edited_stage(folder: str, kept_in: str, packages: str) -> Any:
    sys.path.insert(0, packages)
    sys.dont_write_bytecode = True  # Within a second, an edit that keeps the length would go unnoticed by Python.
    return read_right(folder, kept_in, transform=fixed(import_module("edited.stage").Darken()))


def test_one_edited_line_of_a_stage_or_of_what_it_imports_invalidates_all(pages, tmp_path):
    package = tmp_path / "packages" / "edited"
    package.mkdir(parents=True)
    for stage, amount, expected in (
        (STAGE, 2, NONE),
        (STAGE, 2, ALL),
        (STAGE + "# A remark.\n", 2, ALL),
        (STAGE.replace("// AMOUNT", "// AMOUNT + 1"), 2, NONE),
        (STAGE, 3, NONE),
        (STAGE, 2, ALL),
    ):
        (package / "stage.py").write_text(stage)
        (package / "amount.py").write_text(f"AMOUNT = {amount}\n")
        arguments = {"folder": pages, "kept_in": tmp_path / "cache", "packages": package.parent}
        assert tuple(worker().call(read_with_edited_stage, **arguments)["result"]) == expected


def test_a_stage_whose_parameters_change_between_datasets_has_another_key(pages, tmp_path, caplog):
    class Add(FixedStage):
        amount = 0

        def __repr__(self) -> str:
            return f"Add({self.amount})"

        def __call__(self, sample: Sample) -> Sample:
            return replace(sample, image=sample.image + self.amount)

    stage = Add()
    for amount in (0, 1):
        stage.amount = amount
        assert read_right(pages, tmp_path / "cache", transform=fixed(stage)) == NONE
        assert not caplog.records

"""What a cache may take, and its form: raw if it fits into the memory several times, dense otherwise."""

import re

import pytest
from cache_worker import open_pages, read_annotation, write_annotation, write_pages
from rejection import rejects

from ocr.cache import form
from ocr.cache.budget import Budget
from ocr.cache.forecast import forecast
from ocr.cache.form import choose_form, raw_bytes
from ocr.errors import ConfigError
from ocr.pipeline.cut import Cut
from ocr.units import format_bytes


@pytest.mark.parametrize(
    ("own", "total", "limit", "name"),
    [
        (1000, 2000, 1000, "cache.max_bytes=1000"),
        (3000, 2000, 2000, "cache.max_total_bytes=2000"),
        (1000, "auto", 1000, "cache.max_bytes=1000"),
        (10**18, "auto", None, "cache.max_total_bytes=auto"),
        ("auto", 10**18, None, "cache.max_bytes=auto"),
    ],
)
def test_the_smaller_limit_counts_and_is_named(tmp_path, own, total, limit, name):
    found, named = Budget(own, total).expected(tmp_path, used=0)
    assert named.split(",")[0] == name
    assert found == limit if limit is not None else 0 < found < 10**18


SAMPLE = Cut(page=True, maps=True, normalized=True)
DENSE = Cut(page=True, dense=True)


def test_auto_is_raw_up_to_a_quarter_of_the_memory_and_dense_beyond(monkeypatch):
    monkeypatch.setattr(form, "total_memory", lambda: 4 * 100 * raw_bytes(SAMPLE, 640))
    assert choose_form("auto", SAMPLE, 100, 640).cut == SAMPLE
    chosen = choose_form("auto", SAMPLE, 101, 640)
    assert chosen.cut == DENSE
    assert "25%" in chosen.reason
    assert choose_form("raw", SAMPLE, 101, 640).cut == SAMPLE
    assert choose_form("dense", SAMPLE, 1, 640).cut == DENSE


def test_raw_bytes_are_those_of_page_and_maps():
    assert raw_bytes(SAMPLE, 10) == 100 * (3 * 4 + 4 + 4 + 1 + 1)
    assert raw_bytes(Cut(page=True), 10) == 300


def test_maps_alone_stay_raw():
    maps = Cut(maps=True)
    assert choose_form("dense", maps, 10**9, 640).cut == maps


def test_an_unknown_form_is_named():
    with rejects(ConfigError, setting="cache.form", value="dens"):
        choose_form("dens", SAMPLE, 1, 640)


@pytest.mark.parametrize("cache_form", ["raw", "dense"])
def test_the_share_that_fits_is_told_from_a_sample_and_comes_true(tmp_path, cache_form):
    folder = write_pages(tmp_path / "pages", 20)
    annotation = read_annotation(folder)
    annotation["19.bmp"]["words"]["0001"]["transcription"] = "as short as the others"
    write_annotation(folder, annotation)
    probe = open_pages(folder, tmp_path / "probe", cache_form=cache_form)
    probe.fill_cache()
    half = probe.cache.store().used_bytes // 2
    settings = {"cache_form": cache_form, "cache_max_bytes": half}
    dataset = open_pages(folder, tmp_path / "cache", **settings)
    told = forecast(dataset.cache)
    assert f"cache.form={cache_form}" in told
    (share,) = map(int, re.findall(r"(\d+)%", told))
    dataset.fill_cache()
    assert abs(share / 100 - dataset.cache.covered) <= 0.15
    assert "cache.max_bytes" in told


def test_a_full_cache_says_so(tmp_path):
    dataset = open_pages(write_pages(tmp_path / "pages"), tmp_path / "cache", cache_form="dense")
    before = forecast(dataset.cache)
    assert "100%" in before
    dataset.fill_cache()
    after = forecast(dataset.cache)
    assert "%" not in after
    assert format_bytes(dataset.cache.store().used_bytes) in after

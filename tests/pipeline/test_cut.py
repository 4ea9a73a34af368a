"""The cut: where the fixed stages end, and what is kept there."""

import logging
from typing import Any

import pytest
from rejection import rejects

from ocr.errors import ConfigError
from ocr.pipeline.cut import Cut, CutSettings, choose_cut, refuse_random, split_at_cut
from ocr.pipeline.prefix import Letterbox
from ocr.pipeline.suffix import ColourJitter, RandomFlip
from ocr.pipeline.targets import Targets

BOX, MAPS, FLIP, COLOURS = Letterbox(16), Targets(), RandomFlip(p=1), ColourJitter()
FIXED, COLOURED, MOVED = (BOX,), (BOX, COLOURS), (BOX, COLOURS, FLIP)


def test_the_cut_lies_before_the_first_random_stage() -> None:
    assert split_at_cut([BOX, FLIP, MAPS]) == ((BOX,), (FLIP, MAPS))
    assert split_at_cut([BOX, MAPS]) == ((BOX, MAPS), ())
    assert split_at_cut([FLIP, BOX]) == ((), (FLIP, BOX))
    assert split_at_cut([]) == ((), ())


def test_a_random_stage_before_something_that_would_freeze_it_is_named() -> None:
    with rejects(ConfigError, setting="data.cache", value="all"):
        refuse_random([BOX, FLIP], "data.cache", "all")

    refuse_random([BOX, MAPS], "data.cache", "all")


@pytest.mark.parametrize(
    ("settings", "fixed", "coloured", "moved"),
    [
        ({}, "off", "off", "off"),
        ({"cache": False}, "off", "off", "off"),
        ({"cache": "auto"}, "float page + maps", "page + maps", "page"),
        ({"cache": "prefix"}, "page", "page", "page"),
        ({"cache": "batch"}, "float page + maps", "refused", "refused"),
        ({"cache_transformed_tensors": True}, "float page + maps", "refused", "refused"),
        ({"prenormalize_images": True}, "float page", "refused", "refused"),
        ({"preload_images": True}, "page", "page", "page"),
        ({"preload_maps": True}, "maps", "maps", "refused"),
        ({"preload_everything": True}, "page + maps", "page + maps", "page"),
    ],
    ids=str,
)
def test_as_much_is_kept_as_is_asked_for_and_is_fixed(settings: Any, fixed: str, coloured: str, moved: str) -> None:
    for stages, kept in ((FIXED, fixed), (COLOURED, coloured), (MOVED, moved)):
        if kept == "refused":
            with pytest.raises(ConfigError):
                choose_cut(stages, CutSettings(**settings), normalizes_on_host=True)
        else:
            assert str(choose_cut(stages, CutSettings(**settings), normalizes_on_host=True)) == kept


def test_pages_stay_bytes_if_the_device_normalises_them() -> None:
    assert choose_cut(FIXED, CutSettings("auto"), normalizes_on_host=False) == Cut(page=True, maps=True)


def test_maps_that_cannot_be_preloaded_are_named_in_one_line(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        choose_cut(MOVED, CutSettings(preload_everything=True), normalizes_on_host=True)
    assert [record.getMessage() for record in caplog.records] == [
        "preload_everything=true: pages are preloaded, but not maps, because the transforms move polygons"
    ]


def test_an_unknown_cache_is_named_with_the_known_ones() -> None:
    with rejects(ConfigError, setting="data.cache", value="perfix"):
        choose_cut(FIXED, CutSettings("perfix"), normalizes_on_host=True)

"""What is measured of pages: heights of text, words or lines, colours; from a part of a large split."""

import json
from pathlib import Path

import cv2
import numpy as np
import pytest
from rejection import rejects

from ocr.datasets import DBTransforms, OCRDataset
from ocr.datasets.page_statistics import measure_pages
from ocr.errors import ConfigError, ImageError


def box(left: float, top: float, width: float, height: float) -> list[list[float]]:
    return [[left, top], [left + width, top], [left + width, top + height], [left, top + height]]


def rows(left: float, widths: list[float], gap: float, height: float = 10) -> list[list[list[float]]]:
    """Six rows of text, each a piece of every width with a gap after it."""
    words = []
    for row in range(6):
        at = left
        for width in widths:
            words.append(box(at, 10 + 20 * row, width, height))
            at += width + gap
    return words


def split(folder: Path, pages: list[list], colour: tuple[int, int, int] = (0, 0, 0), size=(200, 160), **settings):
    """A dataset of white pages, a corner of each in a colour."""
    (folder / "images").mkdir(parents=True)
    image = np.full((size[1], size[0], 3), 255, np.uint8)
    image[:20, :20] = colour
    entries = {}
    for number, words in enumerate(pages):
        cv2.imwrite(str(folder / "images" / f"{number:04d}.png"), image)
        entries[f"{number:04d}.png"] = {"words": {str(w): word for w, word in enumerate(words)}}
    for page in entries.values():
        page["words"] = {
            key: word if isinstance(word, dict) else {"points": word} for key, word in page["words"].items()
        }
    (folder / "words.json").write_text(json.dumps({"images": entries}))
    return OCRDataset(folder / "images", folder / "words.json", DBTransforms([]), **settings)


def test_text_is_measured_against_the_longest_side_of_its_page(tmp_path):
    words = [box(10, 5 + 12 * row, 100, 5 + row) for row in range(11)]
    found = measure_pages(split(tmp_path, [words]))
    assert found.text_height == pytest.approx(6 / 200), "the second lowest of eleven"
    assert (found.pages, found.measured, found.words_per_page) == (1, 1, 11)


def test_turned_text_is_as_high_as_its_shorter_side(tmp_path):
    standing = [box(10 + 20 * column, 10, 8, 90) for column in range(6)]
    assert measure_pages(split(tmp_path, [standing])).text_height == pytest.approx(8 / 200)


@pytest.mark.parametrize("swap", [False, True], ids=["along rows", "along columns"])
def test_words_have_neighbours_and_lines_have_none(tmp_path, swap):
    def turned(words):
        return [[point[::-1] for point in word] for word in words] if swap else words

    words = measure_pages(split(tmp_path / "words", [turned(rows(5, [30, 20, 30, 25], gap=4))]))
    columns = measure_pages(split(tmp_path / "lines", [turned(rows(5, [60, 30], gap=40))]))
    assert words.neighbour_share == pytest.approx(3 / 4), "all but the last word of a row"
    assert columns.neighbour_share == 0


@pytest.mark.parametrize("degrees", [-20, 8, 70])
def test_a_page_that_lies_askew_is_measured_like_any_other(tmp_path, degrees):
    turn = cv2.getRotationMatrix2D((100, 80), degrees, 0.7)
    pages = [rows(5, [30, 20, 30, 25], gap=4), rows(5, [190], gap=0)]
    askew = [[(np.array(word) @ turn[:, :2].T + turn[:, 2]).tolist() for word in page] for page in pages]
    words, lines = (measure_pages(split(tmp_path / str(n), [page])) for n, page in enumerate(askew))
    assert (words.neighbour_share, lines.neighbour_share) == (pytest.approx(3 / 4), 0)
    assert [words.text_height, lines.text_height] == pytest.approx([7 / 200] * 2, rel=0.01)


def test_one_page_of_words_does_not_make_a_split_of_lines_one_of_words(tmp_path):
    lines, words = rows(5, [190], gap=0), rows(5, [20] * 7, gap=4)
    assert measure_pages(split(tmp_path, [lines, words, lines])).neighbour_share == 0


def test_text_marked_ignore_does_not_count(tmp_path):
    speck = {"points": box(100, 100, 2, 1), "illegibility": True}
    found = measure_pages(split(tmp_path, [[box(10, 10, 50, 10), speck]]))
    assert (found.text_height, found.words_per_page) == (pytest.approx(10 / 200), 1)


def test_pages_with_a_patch_of_colour_are_told_from_gray_ones(tmp_path):
    line = [box(10, 10, 50, 10)]
    assert measure_pages(split(tmp_path / "gray", [line] * 3, (90, 90, 90))).colour_share == 0
    assert measure_pages(split(tmp_path / "blue", [line] * 3, (200, 90, 60))).colour_share == 1


def test_a_large_split_is_measured_on_runs_of_its_pages(tmp_path):
    high_at_the_end = [[box(2, 2, 20, 5)]] * 200 + [[box(2, 2, 20, 10)]] * 50
    dataset = split(tmp_path, high_at_the_end, size=(40, 20))
    found = measure_pages(dataset)
    assert (found.pages, found.measured) == (250, 200)
    assert found.text_height == pytest.approx(5 / 40)


def test_a_damaged_page_is_raised_or_left_out_as_the_dataset_does(tmp_path):
    line = [box(10, 10, 50, 10)]
    dataset = split(tmp_path, [line] * 3, on_bad_sample="skip")
    (tmp_path / "images" / "0001.png").write_bytes(b"nothing")
    assert measure_pages(dataset).measured == 2
    strict = OCRDataset(tmp_path / "images", tmp_path / "words.json", dataset.transform)
    with rejects(ImageError, path=tmp_path / "images" / "0001.png"):
        measure_pages(strict)


def test_pages_without_text_are_an_error(tmp_path):
    with rejects(ConfigError, value=None, path=tmp_path / "images"):
        measure_pages(split(tmp_path, [[], []]))

"""What is fed to DALI is what the stages draw; DALI itself is not needed here."""

import numpy as np
import pytest
from test_dali_loader import COLOURS, GEOMETRY, open_split, to_shards

from ocr.dali.plan import divide
from ocr.dali.requests import PageReader
from ocr.datasets import OCRWebDataset
from ocr.pipeline.stage import sample_generator
from ocr.pipeline.suffix import RandomWindow


@pytest.mark.parametrize("geometry", [GEOMETRY, (*GEOMETRY, RandomWindow(64)), ()])
def test_a_request_is_the_page_of_the_default_path_without_its_pixels(synthetic, geometry):
    dataset = open_split(synthetic, "train", *geometry, *COLOURS)
    plan = divide(dataset.transform.stages, random_too=True)
    assert not plan.rest
    reader = PageReader(dataset.path, plan)
    for index in range(len(dataset)):
        request, expected = reader.read(index, 0), dataset.sample(index)
        assert request.sample.image.size == 0
        assert request.sample.size == (expected.width, expected.height)
        assert np.array_equal(request.sample.polygons.vertices, expected.polygons.vertices)
        assert np.array_equal(request.sample.inverse_matrix, expected.inverse_matrix)
        assert request.sample.polygons.texts == expected.polygons.texts


def test_the_generator_of_a_request_continues_where_the_default_path_would(synthetic):
    dataset = open_split(synthetic, "train", *GEOMETRY, *COLOURS)
    plan = divide(dataset.transform.stages, random_too=True)
    page = dataset.at_cut(0)
    rng = sample_generator(dataset.path.seed, 4, 0)
    for stage in dataset.transform.random:
        page = stage.run(page, rng)
    assert PageReader(dataset.path, plan).read(0, 4).rng.random() == rng.random()


def test_inputs_are_the_parameters_that_the_stages_draw(synthetic):
    dataset = open_split(synthetic, "train", *COLOURS)
    plan = divide(dataset.transform.stages, random_too=True)
    for index in range(len(dataset)):
        inputs = PageReader(dataset.path, plan).read(index, 0).inputs
        rng = sample_generator(dataset.path.seed, 0, index)
        drawn = [stage.draw(rng, dataset.at_cut(index).view) for stage in dataset.transform.random]
        assert [bool(inputs[f"on_{number}"]) for number in range(3)] == [value is not None for value in drawn]
        colours, sigma, quality = drawn
        if colours is not None:
            np.testing.assert_allclose(inputs["matrix_0"], colours.matrix, rtol=1e-6)
            np.testing.assert_allclose(inputs["shift_0"], colours.shift, rtol=1e-6)
        if sigma is not None:
            np.testing.assert_allclose(inputs["sigma_1"], sigma, rtol=1e-6)
        if quality is not None:
            assert inputs["quality_2"] == quality


def test_a_part_of_the_shards_draws_what_its_pages_draw_among_all(synthetic, tmp_path):
    whole = open_split(synthetic, "train", *GEOMETRY, *COLOURS)
    to_shards(whole, "train", tmp_path)
    part = OCRWebDataset(tmp_path / "train-000001.tar", whole.transform)
    assert list(part.source.names) == list(whole.source.names)[3:6]
    plan = divide(whole.transform.stages, random_too=True)
    for index in range(len(part)):
        request, expected = (
            PageReader(data.path, plan).read(number, 0) for data, number in ((part, index), (whole, index + 3))
        )
        assert request.rng.random() == expected.rng.random()
        assert np.array_equal(request.sample.inverse_matrix, expected.sample.inverse_matrix)

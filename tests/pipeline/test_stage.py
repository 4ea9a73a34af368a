"""stage: fixed and random stages, and the cut between them."""

import numpy as np
import pytest
from pages import run

from ocr.geometry.polygons import Polygons
from ocr.pipeline.prefix import Letterbox
from ocr.pipeline.sample import Sample
from ocr.pipeline.stage import RandomStage, split_at_cut
from ocr.pipeline.suffix import RandomBlur, RandomFlip
from ocr.pipeline.targets import Targets

BOX, MAPS, FLIP, BLUR = Letterbox(16), Targets(), RandomFlip(p=1), RandomBlur(p=0)


def test_the_cut_lies_before_the_first_random_stage() -> None:
    assert split_at_cut([BOX, FLIP, MAPS]) == ((BOX,), (FLIP, MAPS))
    assert split_at_cut([BOX, MAPS]) == ((BOX, MAPS), ())
    assert split_at_cut([FLIP, BOX]) == ((), (FLIP, BOX))
    assert split_at_cut([]) == ((), ())


def test_stages_of_both_kinds_run_in_their_order() -> None:
    image = np.random.default_rng(0).integers(0, 256, (16, 16, 3), dtype=np.uint8)
    page = Sample(0, "", "", Polygons.pack([]), image=image)

    done = run([BOX, FLIP, BLUR, MAPS], page, np.random.default_rng(0))

    assert np.array_equal(done.image, image[:, ::-1])
    assert done.maps is not None


def test_moving_a_page_makes_its_maps_out_of_date() -> None:
    word = [[2, 2], [12, 2], [12, 8], [2, 8]]
    page = Targets()(Sample(0, "", "", Polygons.pack([word]), image=np.zeros((16, 16, 3), np.uint8)))

    assert page.maps is not None
    assert run([FLIP], page, np.random.default_rng(0)).maps is None


def test_numbers_of_numpy_make_the_same_stage_as_those_of_python() -> None:
    assert repr(Letterbox(np.int64(640), fill=np.uint8(7))) == repr(Letterbox(640, fill=7))  # type: ignore[arg-type]
    assert repr(Targets(np.float64(0.5), min_text_size=np.int32(3))) == repr(Targets(0.5, min_text_size=3))
    assert repr(RandomFlip(p=np.float64(0.25))) == "RandomFlip(p=0.25)"


def test_a_random_stage_without_its_two_steps_cannot_be_made() -> None:
    class OneStep(RandomStage):
        def run(self, sample: Sample, rng: np.random.Generator) -> Sample:
            return sample

    with pytest.raises(TypeError, match=r"abstract.*apply.*draw"):
        OneStep()  # type: ignore[abstract]

"""What a candidate would keep of a page: computed from its pixels, before anything is made."""

from ocr.advisor.remedies.candidates import Candidates
from ocr.jobs.compose import compose_training

PIXELS = 64 * 64


def test_what_is_kept_of_a_page_follows_from_its_pixels(synthetic):
    given = [f"dataset_base_path={synthetic}", "transforms.size=64", "data.cache=off"]
    found = {one.name: one for one in Candidates(lambda more: compose_training([*given, *more]), "val").others()}
    kept = {"prefix cache": 3 * PIXELS, "auto cache": 13 * PIXELS, "stored maps": 7 * PIXELS}
    kept |= {"ready shards": PIXELS // 2}
    assert {name: found[name].kept_bytes for name in kept} == kept
    assert found["prefix cache"].skips == {"source", "fixed"}
    assert found["auto cache"].skips == {"source", "fixed", "targets"}


def test_ready_shards_are_tried_with_the_stages_that_made_them(synthetic, tmp_path, caplog):
    given = [f"dataset_base_path={synthetic}", "transforms.size=64", "data.cache=off"]
    candidates = Candidates(lambda more: compose_training([*given, *more]), "val")
    ready = next(one for one in candidates.others() if one.name == "ready shards")
    tried = ready.build([0, 1], tmp_path)
    assert tried.dataset.source.index.stages
    assert [tried.dataset[index]["image_filename"] for index in tried.indices]
    assert not caplog.records

"""ledger: what any worker noted is there to be read in the main process."""

import io
import json
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image
from torch.utils.data import DataLoader

from ocr.datasets import DBCollateFN, DBTransforms, OCRDataset
from ocr.geometry.polygons import Polygons
from ocr.pipeline.ledger import COUNTS, Ledger
from ocr.pipeline.prefix import Letterbox
from ocr.pipeline.sample import Sample

PLAIN = Sample(0, "a.jpg", "a.jpg", Polygons.pack([]), map_source="drawn")


def test_counts_add_up_over_samples_and_name_their_files():
    ledger = Ledger(["a.jpg", "b.jpg", "c.jpg", "d.jpg"])
    ledger.record(PLAIN)
    ledger.record(
        replace(PLAIN, index=1, recovered="Premature end", dropped_polygons=3, map_source="stored", cached="hit")
    )
    mended = {"dropped_polygons": 1, "crossed_polygons": 2, "simplified_polygons": 1}
    ledger.record(replace(PLAIN, index=2, **mended, map_source="stale", cached="miss"))
    ledger.skip(3)
    totals = ledger.totals()
    assert list(totals) == list(COUNTS)
    assert totals == {
        "seen": 4,
        "recovered": 1,
        "skipped": 1,
        "dropped_polygons": 4,
        "crossed_polygons": 2,
        "simplified_polygons": 1,
        "maps_drawn": 1,
        "maps_stored": 1,
        "maps_stale": 1,
        "cache_hits": 1,
        "cache_misses": 1,
        "cache_invalid": 0,
    }
    assert ledger.files("recovered") == ["b.jpg"]
    assert ledger.files("skipped") == ["d.jpg"]
    assert ledger.files("dropped_polygons") == ["b.jpg", "c.jpg"]
    assert ledger.files("maps_stale") == ["c.jpg"]


def test_a_sample_seen_twice_in_an_epoch_counts_once():
    ledger = Ledger(["a.jpg"])
    for _ in range(2):
        ledger.record(replace(PLAIN, recovered="damaged"))
    assert ledger.totals()["recovered"] == 1
    ledger.record(PLAIN)
    assert ledger.totals()["recovered"] == 0


def test_a_new_epoch_starts_empty():
    ledger = Ledger(["a.jpg"])
    ledger.skip(0)
    ledger.reset()
    assert not any(ledger.totals().values())
    assert ledger.files("skipped") == []


def write_pages(folder):
    """Twelve pages: the third cut in half, the fifth without its end marker, the eighth with a word beside the page."""
    (folder / "images").mkdir()
    pages = {}
    for number in range(12):
        stream = io.BytesIO()
        page = np.random.default_rng(number).integers(0, 256, (40, 60, 3), dtype=np.uint8)
        Image.fromarray(page).save(stream, "JPEG")
        data = stream.getvalue()
        data = {2: data[: len(data) // 2], 4: data[:-2]}.get(number, data)
        (folder / "images" / f"{number}.jpg").write_bytes(data)
        left = 500 if number == 7 else 5
        points = [[left, 5], [left + 40, 5], [left + 40, 25], [left, 25]]
        pages[f"{number}.jpg"] = {"words": {"1": {"points": points}}}
    (folder / "a.json").write_text(json.dumps({"images": pages}))


@pytest.mark.parametrize("method", ["fork", pytest.param("forkserver", marks=pytest.mark.slow)])
def test_the_ledger_is_filled_by_worker_processes(tmp_path, method):
    write_pages(tmp_path)
    transform = DBTransforms([Letterbox(64)], normalize="device")
    dataset = OCRDataset(tmp_path / "images", tmp_path / "a.json", transform, on_bad_sample="skip")
    loader = DataLoader(
        dataset,
        batch_size=3,
        collate_fn=DBCollateFN(),
        num_workers=2,
        multiprocessing_context=method,
        persistent_workers=True,
    )
    for epoch in range(2):
        dataset.set_epoch(epoch)
        sizes = [len(batch["images"]) for batch in loader]
        assert sizes == [2, 3, 3, 3]
        totals = dataset.ledger.totals()
        assert (totals["seen"], totals["skipped"], totals["recovered"], totals["maps_drawn"]) == (12, 1, 1, 11)
        assert dataset.ledger.files("skipped") == ["2.jpg"]
        assert dataset.ledger.files("recovered") == ["4.jpg"]
        assert dataset.ledger.files("dropped_polygons") == ["7.jpg"]


def test_a_sample_takes_eight_bytes_whatever_happened_to_it():
    ledger = Ledger(["a.jpg", "b.jpg"])
    polygons = {"dropped_polygons": 5_000_000, "crossed_polygons": 30_000, "simplified_polygons": 1}
    ledger.record(replace(PLAIN, recovered="damaged", **polygons, map_source="stale", cached="invalid"))
    assert ledger._shared.nbytes == 16
    counted = {name: count for name, count in ledger.totals().items() if count}
    assert counted == {"seen": 1, "recovered": 1, **polygons, "maps_stale": 1, "cache_invalid": 1}


def test_a_count_too_large_for_its_bits_stays_at_the_largest_and_spills_into_no_other():
    ledger = Ledger(["a.jpg"])
    ledger.record(replace(PLAIN, dropped_polygons=2**30, crossed_polygons=2**20, simplified_polygons=2**20))
    totals = ledger.totals()
    assert totals["dropped_polygons"] == 2**24 - 1
    assert totals["crossed_polygons"] == totals["simplified_polygons"] == 2**15 - 1
    assert (totals["seen"], totals["skipped"], totals["maps_drawn"]) == (1, 0, 1)

"""shapes: pages that keep their shape in few shapes of batches, every page once, ranks at equal cost."""

import itertools
from pathlib import Path
from typing import Any

import albumentations
import cv2
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from pages import open_split, without_paths
from PIL import Image
from rejection import rejects
from sameness import assert_same
from torch.utils.data import DataLoader

from ocr import DBCollateFN, DBTransforms, Loader, OCRDataset, OCRWebDataset, ShapeBatchSampler
from ocr.errors import ConfigError
from ocr.loader.shapes import ShapeBatches, ShapePlan, choose_shapes, smallest_holding
from ocr.models import DBLoss
from ocr.models.head import Prediction
from ocr.pipeline.device import Normalize
from ocr.pipeline.prefix import Letterbox
from ocr.pipeline.stage import FixedStage
from ocr.pipeline.suffix import ColourJitter, QuarterTurn, RandomRotate, RandomScale, RandomWindow, TextAwareCrop
from ocr.tools.convert.report import convert
from ocr.tools.convert.settings import ConvertSettings

ANY_SIZES = st.lists(st.tuples(st.integers(1, 320), st.integers(1, 320)), min_size=1, max_size=30).map(np.array)
PORTRAITS = st.lists(st.integers(1, 256).map(lambda width: (width, 256)), min_size=1, max_size=30).map(np.array)


def pixels(shapes, sizes):
    return int(shapes[smallest_holding(shapes, sizes)].prod(axis=1).sum())


@given(ANY_SIZES, st.integers(1, 8))
def test_every_page_fits_into_one_of_few_shapes(sizes, limit):
    shapes = choose_shapes(sizes, limit)
    assert len(shapes) <= limit
    assert (shapes % 32 == 0).all()
    assert (sizes <= shapes[smallest_holding(shapes, sizes)]).all()
    assert (shapes <= shapes[-1]).all()


@given(PORTRAITS, st.integers(1, 4))
def test_no_other_choice_of_shapes_has_less_padding(sizes, limit):
    widths = np.unique(-(-sizes[:, 0] // 32) * 32).tolist()
    choices = [
        np.array([(width, 256) for width in chosen])
        for count in range(1, limit + 1)
        for chosen in itertools.combinations(widths, count)
        if chosen[-1] == widths[-1]
    ]
    assert pixels(choose_shapes(sizes, limit), sizes) == min(pixels(shapes, sizes) for shapes in choices)


def test_tall_and_wide_pages_have_shapes_of_their_own_and_one_that_holds_both():
    sizes = np.array([[100, 640]] * 5 + [[640, 100]] * 5)
    assert choose_shapes(sizes, 3).tolist() == [[128, 640], [640, 128], [640, 640]]


def test_the_smallest_shape_that_holds_a_page_is_taken():
    shapes = np.array([[128, 640], [640, 128], [640, 640]])
    assert smallest_holding(shapes, np.array([[128, 640], [129, 640], [1, 1], [640, 128]])).tolist() == [0, 2, 0, 1]


SIZES = st.lists(st.sampled_from([(96, 320), (128, 320), (200, 320), (320, 320), (320, 90)]), min_size=1, max_size=60)
SETTINGS = st.fixed_dictionaries(
    {
        "batch_size": st.integers(1, 7),
        "shapes": st.integers(1, 5),
        "pixels": st.sampled_from([None, 1, 150_000, 10**6]),
        "seed": st.integers(0, 3),
        "shuffle": st.booleans(),
    }
)


def sampler(sizes, rank=0, world_size=1, drop_last=False, **settings):
    return ShapeBatches(np.array(sizes), drop_last=drop_last, rank=rank, world_size=world_size, **settings)


@given(SIZES, SETTINGS, st.integers(1, 4), st.integers(0, 3))
def test_all_ranks_together_have_every_page_once_and_one_shape_at_a_step(sizes, settings, ranks, epoch):
    if len(sizes) < ranks:
        return
    ranked = [list(sampler(sizes, rank, ranks, **settings).batches(epoch, 0)) for rank in range(ranks)]
    assert {len(batches) for batches in ranked} == {len(sampler(sizes, 0, ranks, **settings))}
    assert sorted(page for batches in ranked for batch in batches for page in batch) == list(range(len(sizes)))
    for step in zip(*ranked, strict=True):
        assert len({batch.shape for batch in step}) == 1
        assert max(map(len, step)) - min(map(len, step)) <= 1
        assert min(map(len, step)) >= 1
        for batch in step:
            height, width = batch.shape
            assert (np.array(sizes)[batch] <= (width, height)).all()


@given(SIZES, SETTINGS, st.integers(1, 3), st.integers(0, 3))
def test_with_drop_last_all_batches_of_a_shape_are_full_and_none_repeats_a_page(sizes, settings, ranks, epoch):
    size = settings["batch_size"]
    if settings["pixels"] is None and len(sizes) < size * ranks:
        return
    try:
        ranked = [list(sampler(sizes, r, ranks, True, **settings).batches(epoch, 0)) for r in range(ranks)]
    except ConfigError:
        assert settings["pixels"] is not None
        return
    pages = [page for batches in ranked for batch in batches for page in batch]
    assert len(set(pages)) == len(pages)
    assert len({len(batches) for batches in ranked}) == 1
    if settings["pixels"] is None:
        assert len(pages) == len(sizes) // (size * ranks) * size * ranks
    for batch in (batch for batches in ranked for batch in batches):
        expected = size if settings["pixels"] is None else max(1, settings["pixels"] // int(np.prod(batch.shape)))
        assert len(batch) == expected


@given(SIZES, SETTINGS, st.integers(0, 3), st.data())
def test_an_epoch_is_resumed_with_the_next_batch(sizes, settings, epoch, data):
    batches = sampler(sizes, **settings)
    whole = [(list(batch), batch.shape) for batch in batches.batches(epoch, 0)]
    done = data.draw(st.integers(0, len(whole)))
    assert [(list(batch), batch.shape) for batch in batches.batches(epoch, done)] == whole[done:]
    assert batches.batches(epoch, done).samples.tolist() == [page for batch, _ in whole[done:] for page in batch]


def test_epochs_have_different_orders_and_the_same_number_of_batches():
    sizes = [(32 * (1 + number % 7), 256) for number in range(60)]
    batches = sampler(sizes, batch_size=4, shuffle=True, drop_last=True)
    epochs = [[tuple(batch) for batch in batches.batches(epoch, 0)] for epoch in range(3)]
    assert len({tuple(epoch) for epoch in epochs}) == 3
    assert [len(epoch) for epoch in epochs] == [len(batches)] * 3 == [15] * 3


def test_pages_left_out_are_others_in_every_epoch():
    sizes = [(64, 256)] * 11 + [(128, 256)] * 6
    batches = sampler(sizes, batch_size=4, shuffle=True, drop_last=True)
    left_out = [set(range(17)) - {page for batch in batches.batches(epoch, 0) for page in batch} for epoch in range(60)]
    assert {len(pages) for pages in left_out} == {1}
    assert len(set.union(*left_out)) >= 14


def test_left_over_pages_of_one_rank_keep_their_small_shape():
    batches = list(sampler([(64, 256)] * 3 + [(256, 256)] * 3, batch_size=2, shuffle=False).batches(0, 0))
    assert [batch.shape for batch in batches if 2 in batch] == [(256, 64)]
    assert sorted(len(batch) for batch in batches) == [1, 1, 2, 2]


def test_a_batch_has_as_many_pages_as_fit_into_its_pixels():
    batches = sampler([(64, 256)] * 8 + [(256, 256)] * 4, batch_size=1, pixels=2 * 256 * 256, shuffle=False)
    assert sorted((batch.shape, len(batch)) for batch in batches.batches(0, 0)) == [
        ((256, 64), 8),
        ((256, 256), 2),
        ((256, 256), 2),
    ]


@pytest.mark.parametrize(
    ("argument", "name"),
    [("shapes", "data.batch_shapes"), ("pixels", "data.batch_pixels"), ("batch_size", "batch_size")],
)
def test_settings_out_of_range_are_refused_by_name(argument, name):
    with rejects(ConfigError, setting=name, value=0):
        sampler([(64, 64)], **{"batch_size": 1, "shuffle": False, argument: 0})


def test_more_devices_than_pages_are_refused():
    with rejects(ConfigError, setting="world_size", value=3):
        sampler([(64, 64)] * 2, world_size=3, batch_size=4, shuffle=False)


# -- the pages themselves: the same batches from every source, cache and engine, and padding that never counts

PAGE = Letterbox(160, shape="page", fill=7)
RANDOM = (TextAwareCrop(p=1), RandomRotate(p=1), RandomScale(p=1), Letterbox(128, shape="page"), ColourJitter(p=1))
STAGES = {"validation": (), "training": RANDOM, "windows": (RandomScale(p=1, resizes=True), RandomWindow(112))}


def transform(*random: Any, normalize: str = "device") -> DBTransforms:
    return DBTransforms([PAGE, *random, Normalize()], normalize=normalize)


def folder(data: Path, stages: Any, split: str = "train", **settings: Any) -> OCRDataset:
    return open_split(data, split, stages, seed=3, **settings)


def batches(dataset: Any, size: int = 3, workers: int = 2, **settings: Any) -> list[Any]:
    return without_paths(Loader(dataset, size, workers, shuffle=True, seed=4, **settings))


def pages_in(batch: dict[str, Any]) -> Any:
    """Each page of a batch with its (height, width) before it was padded; for transforms that keep the frame."""
    for number, (width, height) in enumerate(batch["shape"]):
        scale = 160 / max(width, height)
        yield number, round(height * scale), round(width * scale)


@pytest.mark.parametrize(
    ("stages", "normalize"),
    [("validation", "host"), ("training", "device"), ("training", "host"), ("windows", "device")],
)
def test_every_engine_and_cache_gives_the_same_batches(synthetic, tmp_path, stages, normalize):
    steps = transform(*STAGES[stages], normalize=normalize)
    expected = batches(folder(synthetic, steps), workers=0)
    assert len({batch["images"].shape for batch in expected}) > 1
    assert_same(batches(folder(synthetic, steps), engine="processes"), expected)
    dataset = folder(synthetic, steps, cache="auto", cache_folder=tmp_path)
    assert_same(batches(dataset), expected)
    assert_same(batches(dataset), expected)
    assert dataset.ledger.totals()["cache_hits"] == len(dataset)


@pytest.mark.parametrize("settings", [{}, {"ready": True}], ids=str)
def test_shards_give_the_batches_of_their_folder(synthetic, tmp_path, settings):
    dataset = folder(synthetic, transform())
    assert convert({"train": dataset}, str(tmp_path), ConvertSettings(samples_per_shard=3, **settings)) == 0
    shards = OCRWebDataset(f"{tmp_path}/train-*.tar", transform(), seed=3)
    assert shards.source.index.samples[0].size == dataset.source.size(0, 10**9)
    assert_same(batches(shards), batches(dataset))


@pytest.mark.parametrize("workers", [0, 2])
def test_torchs_own_loader_gives_the_same_batches_with_the_sampler(synthetic, workers):
    dataset = folder(synthetic, transform(*RANDOM))
    sampler = ShapeBatchSampler(dataset, 3, shuffle=True, seed=4)
    plain = DataLoader(dataset, batch_sampler=sampler, collate_fn=DBCollateFN(), num_workers=workers)
    for epoch in (0, 1):
        dataset.set_epoch(epoch)
        sampler.set_epoch(epoch)
        loader = Loader(folder(synthetic, transform(*RANDOM)), 3, 0, shuffle=True, seed=4)
        loader.set_epoch(epoch)
        assert_same(without_paths(plain), without_paths(loader))


def test_the_sampler_keeps_the_order_of_the_pages_unless_it_shuffles(synthetic):
    dataset = folder(synthetic, transform())
    sampled, loaded = ShapeBatchSampler(dataset, 3), Loader(dataset, 3, 0)
    assert [list(batch) for batch in sampled] == [list(batch) for batch in loaded.batch_sampler]


def test_an_item_is_padded_to_multiples_of_32(synthetic):
    dataset = folder(synthetic, transform())
    for index in range(len(dataset)):
        item = dataset[index]
        width, height = dataset.path.planned_sizes[index]
        assert item["image"].shape == (3, -(-height // 32) * 32, -(-width // 32) * 32)
        assert item["prob_map"].shape[1:] == item["image"].shape[1:]
        assert max(width, height) == 160


@pytest.mark.parametrize("normalize", ["host", "device"])
def test_padding_is_fill_in_the_image_and_nothing_in_the_maps(synthetic, normalize):
    dataset = folder(synthetic, transform(normalize=normalize))
    fill = torch.full((3, 1, 1), 7, dtype=torch.uint8)
    if normalize == "host":
        fill = torch.from_numpy(Normalize().on_host(np.full((1, 1, 3), 7, dtype=np.uint8)))
    padded = 0
    for batch in Loader(dataset, 3, 0):
        for number, height, width in pages_in(batch):
            for around in (np.s_[..., height:, :], np.s_[..., :, width:]):
                assert (batch["images"][number][around] == fill).all()
                assert not batch["prob_maps"][number][around].any()
                assert not batch["prob_masks"][number][around].any()
                assert not batch["thresh_masks"][number][around].any()
                assert (batch["thresh_maps"][number][around] == np.float32(0.3)).all()
                padded += batch["prob_maps"][number][around].numel()
            assert batch["prob_masks"][number][..., :height, :width].any()
    assert padded


def test_words_lie_where_they_are_on_the_source_page(synthetic):
    dataset = folder(synthetic, transform(*RANDOM))
    source = {name: dataset.source.read(index).polygons for index, name in enumerate(dataset.source.names)}
    for batch in Loader(dataset, 3, 0):
        for number, name in enumerate(batch["image_filename"]):
            matrix, size = batch["inverse_matrix"][number], batch["shape"][number]
            corners = source[name].vertices
            for polygon in batch["polygons"][number]:
                back = cv2.perspectiveTransform(polygon.astype(np.float64), matrix)[0]
                # Every vertex is one that was annotated.
                assert np.abs(back[:, None] - corners).max(axis=2).min(axis=1).max() < 1e-2 * max(size)


def test_a_page_has_the_same_loss_in_a_larger_batch(synthetic):
    dataset = folder(synthetic, transform())
    item = dataset[0]
    alone = DBCollateFN()([item])
    larger = DBCollateFN()([item | {"batch_hw": (192, 192)}])
    assert larger["images"].shape[-2:] == (192, 192)
    losses = []
    for batch in (alone, larger):
        shape = batch["prob_maps"].shape
        logits = torch.full(shape, 3.0)
        rows, columns = alone["prob_maps"].shape[-2:]
        logits[..., :rows, :columns] = torch.linspace(-3, 3, rows * columns).view(rows, columns)
        losses.append(DBLoss()(Prediction(logits, logits.sigmoid(), logits.sigmoid()), batch)[0])
    assert torch.allclose(*losses)


def test_turned_pages_are_planned_upright(tmp_path):
    (tmp_path / "images").mkdir()
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.new("RGB", (200, 100)).save(tmp_path / "images" / "a.jpg", exif=exif)
    Image.new("RGB", (200, 100)).save(tmp_path / "images" / "b.jpg")
    dataset = OCRDataset(tmp_path / "images", None, transform())
    assert dataset.path.planned_sizes.tolist() == [[80, 160], [160, 80]]
    assert [tuple(batch["images"].shape[-2:]) for batch in Loader(dataset, 2, 0)] == [(160, 96), (96, 160)]


@pytest.mark.parametrize("engine", ["threads", "processes"])
def test_a_page_that_turns_out_larger_than_planned_enlarges_its_batch(synthetic, engine):
    stages = transform(QuarterTurn(p=0.5))
    found = batches(folder(synthetic, stages), engine=engine)
    assert sorted(name for batch in found for name in batch["image_filename"]) == sorted(
        folder(synthetic, stages).source.names
    )
    assert {batch["images"].shape[-2:] for batch in found} & {(160, 160)}
    assert_same(found, batches(folder(synthetic, stages), workers=0))


def test_albumentations_keep_working(synthetic):
    steps = [PAGE, albumentations.HorizontalFlip(p=1), albumentations.CLAHE(p=1), Normalize()]
    dataset = folder(synthetic, DBTransforms(steps, normalize="device"))
    assert_same(batches(dataset), batches(folder(synthetic, DBTransforms(steps, normalize="device")), workers=0))


@pytest.mark.parametrize("workers", [0, 2])
def test_a_loader_resumes_in_the_middle_of_an_epoch(synthetic, workers):
    whole = batches(folder(synthetic, transform(*RANDOM)), 2)
    first = Loader(folder(synthetic, transform(*RANDOM)), 2, 2, shuffle=True, seed=4)
    passed = iter(first)
    next(passed)
    state = first.state_dict()
    passed.close()
    again = Loader(folder(synthetic, transform(*RANDOM)), 2, workers, shuffle=True, seed=4)
    again.load_state_dict(state)
    assert_same(without_paths(again), whole[1:])
    other = Loader(folder(synthetic, transform(*RANDOM)), 2, workers, shuffle=True, seed=4, batch_shapes=2)
    with rejects(
        ConfigError,
        setting="batch_shapes",
        value={"batch_size": 2, "world_size": 1, "batch_shapes": 2, "batch_pixels": 0},
    ):
        other.load_state_dict(state)


def test_a_batch_has_as_many_pages_as_its_pixels_allow(synthetic):
    dataset = folder(synthetic, transform())
    for batch in Loader(dataset, 1, 0, batch_pixels=3 * 160 * 128):
        pages, _, height, width = batch["images"].shape
        assert pages <= max(1, 3 * 160 * 128 // (height * width))


def test_a_sampler_for_pages_of_one_size_is_rejected(synthetic):
    with rejects(ConfigError, setting="ShapeBatchSampler.dataset"):
        ShapeBatchSampler(folder(synthetic, DBTransforms([Letterbox(96)])), 2)


def test_unreadable_pages_are_skipped_like_all_others(dataset_folder):
    next((dataset_folder / "images" / "train").iterdir()).write_bytes(b"not an image")
    dataset = folder(dataset_folder, transform(), on_bad_sample="skip")
    found = [batch for batch in Loader(dataset, 3) if batch is not None]
    assert sum(len(batch["image_filename"]) for batch in found) == len(dataset) - 1


class Wider(FixedStage):
    """A stage that changes the size of pages and does not say so."""

    def __call__(self, sample):
        height, width = sample.image.shape[:2]
        return sample.moved(np.zeros((height, width + 64, 3), np.uint8), np.eye(3))


def test_a_custom_stage_that_changes_sizes_only_costs_padding(synthetic):
    dataset = folder(synthetic, DBTransforms([PAGE, Wider(), Normalize()], normalize="device"))
    for batch in Loader(dataset, 3):
        assert batch["images"].shape[-1] % 32 == 0
        assert batch["images"].shape[-1] >= 64


class Grows(FixedStage):
    """Makes one page wider and the next one taller than planned."""

    def __call__(self, sample):
        (width, height), number = sample.size, sample.index % 3
        larger = np.full((height + 64 * (number == 2), width + 64 * (number == 1), 3), 9, np.uint8)
        larger[:height, :width] = sample.image
        return sample.moved(larger, np.eye(3))


@pytest.mark.parametrize("workers", [0, 2])
def test_a_batch_that_two_pages_outgrow_holds_both(synthetic, workers):
    stages = DBTransforms([PAGE, Grows(), Normalize()])
    expected = list(Loader(folder(synthetic, stages), 3, 1, "processes"))
    found = list(Loader(folder(synthetic, stages), 3, workers))
    assert_same(found, expected)
    plan = list(Loader(folder(synthetic, stages), 3).batch_sampler)
    outgrown = [number for number, batch in enumerate(plan) if {1, 2} <= {index % 3 for index in batch}]
    assert outgrown
    for number in outgrown:
        height, width = plan[number].shape
        assert (found[number]["images"].shape[-2] > height) & (found[number]["images"].shape[-1] > width)


def test_batches_have_eight_shapes_at_most():
    sizes = np.array([[640, 640 - 12 * number] for number in range(40)])
    assert len({batch.shape for batch in ShapeBatches(sizes, 2, shuffle=False, drop_last=False).batches(0, 0)}) == 8


def test_a_pass_that_is_over_has_no_samples_left():
    plan = ShapePlan(np.arange(4), np.array([0, 2, 4]), np.array([[32, 32], [32, 64]]), first_batch=3)
    assert len(plan.samples) == 0
    assert list(plan) == []

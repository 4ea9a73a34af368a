"""Maps drawn by torch are those of the compiled kernel, on the CPU and on a GPU."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from test_dali_loader import COLOURS, GEOMETRY, HAS_DALI, compare, open_split

from ocr.dali import maps as dali_maps
from ocr.dali.graph import ocr_pipeline
from ocr.dali.maps import draw_on_device, raise_band
from ocr.datasets import DALIDataLoader
from ocr.geometry.kernels.maps import _raise_border_band
from ocr.geometry.polygons import Polygons
from ocr.loader import Loader
from ocr.pipeline.sample import Maps, Sample
from ocr.pipeline.targets import Targets

NAMES = [f"{name}s" for name in Maps._fields]
on_gpu = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available() or not HAS_DALI, reason="no GPU here"),
]


def stars(count: int, seed: int = 0, size: int = 200) -> Polygons:
    """Stars of three to nine vertices, some of them over the border of the page or the wrong way round."""
    rng = np.random.default_rng(seed)
    polygons = []
    for corners in rng.integers(3, 10, count).tolist():
        angles = np.sort(rng.uniform(0, 2 * np.pi, corners))[:: rng.choice([-1, 1])]
        radii = rng.uniform(6, 30, corners)[:, None]
        polygons.append(rng.uniform(-5, size + 5, 2) + radii * np.column_stack([np.cos(angles), np.sin(angles)]))
    return Polygons.pack(polygons, rng.random(count) < 0.2)


def page(polygons: Polygons, size: int = 200, annotated: bool = True) -> Sample:
    return Sample(0, "", "", polygons, annotated, image=np.zeros((size, size + 10, 3), dtype=np.uint8))


def check(samples: list[Sample], device: str, targets: Targets) -> None:
    found = draw_on_device(targets, samples, torch.device(device), samples[0].image.shape[:2])
    drawn = [targets.draw(sample.polygons, sample.width, sample.height, sample.annotated) for sample in samples]
    for number, name in enumerate(NAMES):
        expected = torch.from_numpy(np.stack([maps[number] for maps in drawn]))[:, None]
        assert found[name].dtype == expected.dtype
        if name == "thresh_maps":
            assert torch.allclose(found[name].cpu(), expected, rtol=0, atol=2e-5)
        elif name == "thresh_masks":
            # A pixel at distance D exactly may fall on either side.
            assert (found[name].cpu() != expected).sum() <= 2
        else:
            assert torch.equal(found[name].cpu(), expected)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=on_gpu)])
def test_the_band_of_any_polygon_is_that_of_the_compiled_kernel(seed, device):
    polygons = stars(30, seed)
    distances = np.random.default_rng(seed).uniform(-2, 9, 30)
    expected = np.full((200, 210), 0.3, dtype=np.float32)
    _raise_border_band(polygons.vertices, polygons.offsets, distances, 0.3, 0.7, expected)
    found = torch.full((200, 210), 0.3, device=device)
    raise_band(polygons, distances, 0.3, 0.7, found)
    assert np.abs(found.cpu().numpy() - expected).max() < 2e-5
    assert (expected > 0.3).any()


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=on_gpu)])
def test_all_maps_are_those_of_the_host_also_for_text_that_is_left_out(synthetic, device):
    pages = [open_split(synthetic, "train").page(index) for index in range(4)]
    check(pages, device, Targets())
    check(
        [page(stars(25)), page(stars(3, 1)), page(Polygons.pack([]))], device, Targets(0.5, 0.2, 0.9, min_text_size=8)
    )
    nobody_looked = replace(page(Polygons.pack([])), annotated=False)
    check([nobody_looked], device, Targets())
    twice = Polygons.pack([[[9, 9], [9, 9], [60, 9], [60, 30], [9, 30]], [[0, 0], [5, 5], [5, 0], [0, 5]]])
    check([page(twice)], device, Targets())


def test_a_page_with_more_than_fits_at_once_is_drawn_in_parts(monkeypatch):
    monkeypatch.setattr(dali_maps, "MAX_PAIRS", 500)
    check([page(stars(40))], "cpu", Targets())


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available() or not HAS_DALI, reason="no GPU here")
@pytest.mark.parametrize("maps", ["host", "device"])
@pytest.mark.parametrize(("split", "random"), [("val", ()), ("train", (*GEOMETRY, *COLOURS))])
def test_a_gpu_gives_the_batches_of_the_default_loader(synthetic, split, random, maps):
    settings = {"image_loading_config": {"scaled": "off"}}
    expected = list(Loader(open_split(synthetic, split, *random, **settings), 4))
    dataset = open_split(synthetic, split, *random, **settings)
    loader = DALIDataLoader(ocr_pipeline(dataset, 4, device="gpu", maps=maps), len(dataset), 4)
    batches = list(loader)
    assert all(batch["images"].is_cuda for batch in batches)
    on_host = [
        {name: value.cpu() if isinstance(value, torch.Tensor) else value for name, value in batch.items()}
        for batch in batches
    ]
    for batch, own in zip(on_host, expected, strict=True):
        assert torch.allclose(batch["thresh_maps"], own["thresh_maps"], atol=2e-5)
        batch.update({name: own[name] for name in ("thresh_maps", "thresh_masks")})
    assert compare(expected, on_host).max() < (4 if random else 1)

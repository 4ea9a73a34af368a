"""OCRWebDataset: shards give the samples of their folder, wherever they lie and however they are read."""

import hashlib
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hydra import compose, initialize_config_dir
from sameness import assert_same

from ocr.datasets import DBTransforms, OCRDataset, OCRWebDataset
from ocr.datasets.data_module import OCRDataModule
from ocr.errors import ConfigError, DataError, ImageError
from ocr.loader import Loader
from ocr.pipeline.cut import Cut
from ocr.pipeline.device import Normalize
from ocr.pipeline.fingerprint import content_digest, stages_digest
from ocr.pipeline.metadata import FIELDS
from ocr.pipeline.prefix import Letterbox
from ocr.pipeline.record import to_record
from ocr.pipeline.suffix import ColourJitter, RandomFlip, TextAwareCrop
from ocr.shards.index import RAW, READY, Shard, ShardIndex, end_tar, shard_name, write_member
from ocr.shards.sample_rows import SampleRows, StoredSample

SIZE = 96
FIXED = DBTransforms([Letterbox(SIZE), Normalize()])
DEVICE = DBTransforms([Letterbox(SIZE), Normalize()], normalize="device")
RANDOM = DBTransforms([Letterbox(SIZE), TextAwareCrop(), RandomFlip(), ColourJitter(), Normalize()])


def folder(data: Path, split: str, transform: DBTransforms = FIXED, **settings: Any) -> OCRDataset:
    return OCRDataset(data / "images" / split, data / "jsons" / f"{split}.json", transform, **settings)


def write_shards(dataset: OCRDataset, out: Path, split: str, per_shard: int = 3, ready: bool = False) -> Path:
    """Shards as they are specified, written by hand."""
    out.mkdir(parents=True, exist_ok=True)
    shards, samples = [], []
    for number, first in enumerate(range(0, len(dataset), per_shard)):
        stream = io.BytesIO()
        indices = range(first, min(first + per_shard, len(dataset)))
        samples += [write_sample(stream, dataset, index, number, ready) for index in indices]
        end_tar(stream)
        data = stream.getvalue()
        (out / shard_name(split, number)).write_bytes(data)
        digest = hashlib.sha256(data).hexdigest()
        shards.append(Shard(shard_name(split, number), len(data), digest, len(indices)))
    stages = stages_digest((dataset.decode, *dataset.transform.fixed, dataset.targets)) if ready else ""
    index_ = ShardIndex(split, READY if ready else RAW, True, "", stages, tuple(shards), SampleRows.of(samples))
    (out / f"{split}-index.json").write_text("".join(index_.json_parts()))
    return out


def write_sample(stream: io.BytesIO, dataset: OCRDataset, index: int, shard: int, ready: bool) -> StoredSample:
    raw, key = dataset.source.read(index), f"{index:08d}"
    page = dataset.sample(index) if ready else raw
    noted: dict[str, Any] = {
        "filename": raw.filename,
        "annotated": True,
        "polygons": [polygon.tolist() for polygon in page.polygons],
        "ignore": page.polygons.ignore.tolist(),
        "texts": list(page.polygons.texts),
        "size": raw.claimed_size,
    }
    members = {}
    if ready:
        noted |= {"inverse_matrix": page.inverse_matrix.ravel().tolist()} | {
            name: getattr(page, name) for name in FIELDS
        }
        for name, array in to_record(page, Cut(page=True, maps=True)).arrays.items():
            saved = io.BytesIO()
            np.save(saved, array, allow_pickle=False)
            members[f"{name}.npy"] = write_member(stream, f"{key}.{name}.npy", saved.getvalue())
    else:
        members["jpg"] = write_member(stream, f"{key}.jpg", raw.encoded)
    members["json"] = write_member(stream, f"{key}.json", json.dumps(noted).encode())
    digests = content_digest(raw.encoded).hex(), dataset.source.annotation_digest(index).hex()
    return StoredSample(key, raw.filename, shard, members, *digests)


def without_paths(batches: list[Any]) -> list[Any]:
    return [{name: value for name, value in batch.items() if name != "image_path"} for batch in batches]


@pytest.mark.parametrize("cache", ["off", "auto"])
@pytest.mark.parametrize(("split", "transform"), [("val", FIXED), ("val", DEVICE), ("train", RANDOM)])
def test_raw_shards_give_the_batches_of_their_folder_bit_for_bit(synthetic, tmp_path, split, transform, cache):
    shards = write_shards(folder(synthetic, split), tmp_path / "shards", split)
    pattern = f"{shards}/{split}-{{000000..{(7 if split == 'train' else 5) // 3:06d}}}.tar"
    expected = list(Loader(folder(synthetic, split, transform, seed=3), 4, 0))
    settings = {"seed": 3, "cache": cache, "cache_folder": tmp_path / "cache"}
    for _ in range(2):
        dataset = OCRWebDataset(pattern, transform, **settings)
        for engine in ("threads", "processes"):
            assert_same(without_paths(list(Loader(dataset, 4, 2, engine))), without_paths(expected))
            dataset.set_epoch(0)


def test_shards_and_folder_share_what_is_cached(synthetic, tmp_path):
    shards = write_shards(folder(synthetic, "val"), tmp_path / "shards", "val")
    settings = {"cache": "auto", "cache_folder": tmp_path / "cache"}
    list(Loader(folder(synthetic, "val", **settings)))
    dataset = OCRWebDataset(f"{shards}/val-*.tar", FIXED, **settings)
    list(Loader(dataset))
    assert dataset.ledger.totals()["cache_hits"] == len(dataset)


@pytest.mark.parametrize("transform", [DEVICE, RANDOM], ids=["validation", "training"])
def test_ready_shards_give_the_same_without_decoding(synthetic, tmp_path, transform):
    made = folder(synthetic, "val", DEVICE)
    shards = write_shards(made, tmp_path, "val", ready=True)
    dataset = OCRWebDataset(f"{shards}/val-*.tar", transform, seed=1)
    expected = list(Loader(folder(synthetic, "val", transform, seed=1), 4, 0))
    assert_same(without_paths(list(Loader(dataset, 4, 2))), without_paths(expected))


def test_ready_shards_of_other_stages_are_refused(synthetic, tmp_path):
    shards = write_shards(folder(synthetic, "val", DEVICE), tmp_path, "val", ready=True)
    with pytest.raises(ConfigError, match=r"made by other stages.*Letterbox\(size=64.*Convert again"):
        OCRWebDataset(f"{shards}/val-*.tar", DBTransforms([Letterbox(64), Normalize()]))


def test_local_shards_without_an_index_are_scanned(synthetic, tmp_path):
    shards = write_shards(folder(synthetic, "val"), tmp_path, "val")
    (shards / "val-index.json").unlink()
    dataset = OCRWebDataset([shards / "val-000000.tar", shards / "val-000001.tar"], FIXED)
    expected = list(Loader(folder(synthetic, "val"), 4, 0))
    for mine, theirs in zip(Loader(dataset, 4, 2), expected, strict=True):
        for name in ("images", "prob_maps", "thresh_maps", "polygons", "transcriptions", "inverse_matrix"):
            assert_same(mine[name], theirs[name], name)


def test_a_part_of_the_shards_is_a_part_of_the_samples(synthetic, tmp_path):
    whole = folder(synthetic, "train")
    shards = write_shards(whole, tmp_path, "train")
    dataset = OCRWebDataset(shards / "train-000001.tar", FIXED)
    assert list(dataset.source.names) == whole.source.names[3:6]
    assert_same(dataset[0]["image"], whole[3]["image"])


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_shuffling_from_shard_to_shard_loses_and_repeats_nothing(synthetic, tmp_path, ranks):
    shards = write_shards(folder(synthetic, "train"), tmp_path, "train", per_shard=2)
    seen = []
    for rank in range(ranks):
        dataset = OCRWebDataset(f"{shards}/train-*.tar", FIXED, shuffle_buffer=3)
        loader = Loader(dataset, 2, 2, shuffle=True, seed=5, rank=rank, world_size=ranks)
        seen += [name for batch in loader for name in batch["image_filename"]]
    assert sorted(seen) == sorted(dataset.source.names)
    assert seen != list(dataset.source.names)


def test_a_resumed_epoch_of_shards_goes_on_exactly(synthetic, tmp_path):
    shards = write_shards(folder(synthetic, "train"), tmp_path, "train", per_shard=2)

    def loader(workers: int) -> Loader:
        dataset = OCRWebDataset(f"{shards}/train-*.tar", RANDOM, shuffle_buffer=3)
        return Loader(dataset, 2, workers, shuffle=True, seed=5)

    expected, begun, resumed = list(loader(0)), loader(2), loader(1)
    first = next(iter(begun))
    resumed.load_state_dict(begun.state_dict())
    assert_same([first, *resumed], expected)


@pytest.mark.parametrize("kind", ["image", "json", "truncated", "missing"])
def test_a_damaged_shard_is_named_or_its_samples_skipped_and_counted(synthetic, tmp_path, kind):
    shards = write_shards(folder(synthetic, "val"), tmp_path, "val")
    damaged = shards / "val-000001.tar"
    data = bytearray(damaged.read_bytes())
    stored = OCRWebDataset(f"{shards}/val-*.tar", FIXED).source.index.samples[4]
    if kind in ("image", "json"):
        start, size = stored.members["jpg" if kind == "image" else "json"]
        data[start + (size // 2 if kind == "image" else 0)] ^= 1
        damaged.write_bytes(data)
    elif kind == "truncated":
        damaged.write_bytes(data[:-2000])
    else:
        damaged.unlink()
    pattern = f"{shards}/val-{{000000..000001}}.tar"
    with pytest.raises(DataError, match=r"val-000001\.tar"):
        list(Loader(OCRWebDataset(pattern, FIXED), 6, 2))
    dataset = OCRWebDataset(pattern, FIXED, on_bad_sample="skip")
    (batch,) = Loader(dataset, 6, 2)
    left_out = 1 if kind in ("image", "json") else 3
    assert len(batch["images"]) == 6 - left_out
    assert dataset.ledger.totals()["skipped"] == left_out


def test_a_flipped_bit_is_told_with_its_offset(synthetic, tmp_path):
    shards = write_shards(folder(synthetic, "val"), tmp_path, "val")
    dataset = OCRWebDataset(f"{shards}/val-*.tar", FIXED)
    start, _ = dataset.source.index.samples[0].members["jpg"]
    data = bytearray((shards / "val-000000.tar").read_bytes())
    data[start + 100] ^= 8
    (shards / "val-000000.tar").write_bytes(data)
    with pytest.raises(ImageError, match=f"val-000000.tar: 00000000 .* at offset {start}: not the bytes"):
        OCRWebDataset(f"{shards}/val-*.tar", FIXED)[0]


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"tar_path": "nowhere-*.tar"}, "matches no shard"),
        ({"tar_path": 5}, "must be a path"),
        ({"on_bad_sample": "ignore"}, "on_bad_sample='ignore'"),
        ({"shuffle_buffer": 0}, "shards.shuffle_buffer=0"),
        ({"tries": 0}, "shards.tries=0"),
        ({"shard_max_bytes": "much"}, "shards.max_bytes='much'"),
        ({"seed": -1}, "seed=-1"),
    ],
    ids=lambda value: str(value)[:24],
)
def test_settings_that_cannot_work_are_refused(synthetic, tmp_path, settings, complaint):
    shards = write_shards(folder(synthetic, "val"), tmp_path, "val")
    with pytest.raises(ConfigError, match=complaint):
        OCRWebDataset(**{"tar_path": f"{shards}/val-*.tar", "transform": FIXED} | settings)


def test_a_training_config_reads_shards(synthetic, tmp_path):
    for split in ("train", "val"):
        write_shards(folder(synthetic, split), tmp_path / "shards", split)
    with initialize_config_dir(str(Path(__file__).resolve().parents[2] / "configs"), version_base="1.3"):
        chosen = [f"shards_base_path={tmp_path / 'shards'}", f"cache.folder={tmp_path}", "transforms.size=96"]
        config = compose("train", ["data=webdataset", *chosen, "dataloaders.train_dataloader.batch_size=2"])
    for split, pages in (("train", 8), ("val", 6)):
        loader = OCRDataModule(config).loader(split)
        assert isinstance(loader.dataset, OCRWebDataset)
        assert sum(len(batch["images"]) for batch in loader) == pages


def test_blocks_are_refused_for_shards_which_are_blocks_already(synthetic, tmp_path):
    shards = write_shards(folder(synthetic, "val"), tmp_path / "shards", "val")
    with pytest.raises(ConfigError, match=r"data\.order=blocks.*shards\.shuffle_buffer"):
        Loader(OCRWebDataset(f"{shards}/val-*.tar", FIXED), shuffle=True, order="blocks")

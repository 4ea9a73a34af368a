"""cached: items of any dataset are those without a cache, made once, and again when what they are made of changed."""

import os
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from rejection import rejects
from torch.utils.data import DataLoader

from ocr import Loader, cached
from ocr.cache.items import MANY, pack_item, unpack_item
from ocr.cache.store import close_store
from ocr.errors import ConfigError, DataError

CLASSES = ("cat", "dog", "owl")


class Pictures:
    """A classification folder: the files of each class in a folder of its name."""

    def __init__(self, root: Path, scale: float = 1.0) -> None:
        self.samples = sorted((path, CLASSES.index(path.parent.name)) for path in root.glob("*/*.npy"))
        self.scale = scale
        self.made: list[int] = []

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int) -> dict[str, Any]:
        self.made.append(index)
        path, label = self.samples[index]
        pixels = np.load(path)
        return {"image": torch.from_numpy(pixels * self.scale), "label": label, "name": path.name}

    def key(self, index: int) -> tuple[Path, int]:
        return self.samples[index]


def write_pictures(root: Path, each: int = 4) -> Path:
    draw = np.random.default_rng(0)
    for name in CLASSES:
        (root / name).mkdir(parents=True)
        for number in range(each):
            path = root / name / f"{number}.npy"
            np.save(path, draw.normal(size=(2 + number, 3)).astype(np.float32))
            os.utime(path, (1e9, 1e9))
    return root


def open_cached(pictures: Pictures, folder: Path) -> Any:
    close_store(folder)  # As another run would find it.
    return cached(pictures, pictures.key, listed=("samples", "made"), folder=folder)


def assert_same_items(found: Any, expected: Any) -> None:
    assert len(found) == len(expected)
    for index in range(len(expected)):
        one, other = found[index], expected[index]
        assert torch.equal(one.pop("image"), other.pop("image"))
        assert one == other


def test_items_are_made_once_and_the_next_run_makes_none_but_those_it_compares(tmp_path):
    root, folder = write_pictures(tmp_path / "pictures"), tmp_path / "cache"
    first = Pictures(root)
    items = open_cached(first, folder)
    assert_same_items(items, Pictures(root))
    assert sorted(first.made) == [0, 0, *range(12)]
    second = Pictures(root)
    assert_same_items(open_cached(second, folder), Pictures(root))
    # Item 0 twice to see whether it is random, three of any to see whether they are still the same.
    assert len(second.made) == 5


def test_an_item_is_memory_of_its_own(tmp_path):
    items = open_cached(Pictures(write_pictures(tmp_path / "pictures")), tmp_path / "cache")
    items[3]["image"].zero_()
    items[3]["image"].zero_()
    assert items[3]["image"].any()


def test_an_edited_file_another_label_and_another_setting_are_noticed(tmp_path):
    root, folder = write_pictures(tmp_path / "pictures"), tmp_path / "cache"
    pictures = Pictures(root)
    items = open_cached(pictures, folder)
    assert_same_items(items, Pictures(root))
    np.save(pictures.samples[5][0], np.ones((7, 3), np.float32))
    assert_same_items(items, Pictures(root))
    assert items[5]["image"].shape == (7, 3)
    os.rename(root / "cat" / "0.npy", root / "dog" / "9.npy")
    assert_same_items(open_cached(Pictures(root), folder), Pictures(root))
    assert_same_items(open_cached(Pictures(root, scale=2.0), folder), Pictures(root, scale=2.0))


def test_a_file_that_is_gone_is_named(tmp_path):
    pictures = Pictures(write_pictures(tmp_path / "pictures"))
    items = open_cached(pictures, tmp_path / "cache")
    pictures.samples[2][0].unlink()
    with rejects(DataError, value=2, path=pictures.samples[2][0]):
        items[2]


def test_an_item_of_which_a_byte_is_damaged_is_made_again(tmp_path):
    root, folder = write_pictures(tmp_path / "pictures"), tmp_path / "cache"
    items = open_cached(Pictures(root), folder)
    assert_same_items(items, Pictures(root))
    items.flush()
    value = next(bytes(value) for _, value in items.cache.store.items("pages"))
    close_store(folder)
    (file,) = folder.glob("store/data.mdb")
    data = bytearray(file.read_bytes())
    data[data.index(value) + len(value) - 1] ^= 1
    file.write_bytes(data)
    assert_same_items(open_cached(Pictures(root), folder), Pictures(root))


@pytest.mark.parametrize("engine", ["threads", "processes"])
def test_a_loader_resumes_in_the_middle_of_an_epoch(tmp_path, engine):
    items = open_cached(Pictures(write_pictures(tmp_path / "pictures", each=3)), tmp_path / "cache")

    def names(batch: list[dict[str, Any]]) -> list[str]:
        return [str(item["label"]) + item["name"] for item in batch]

    def open_loader() -> Loader:
        return Loader(items, 2, 2, engine, shuffle=True, seed=3, collate_fn=lambda batch: {"names": names(batch)})

    whole = [batch["names"] for batch in open_loader()]
    loader, seen = open_loader(), []
    for batch in loader:
        seen.append(batch["names"])
        if len(seen) == 2:
            state = loader.state_dict()
            break
    rest = open_loader()
    rest.load_state_dict(state)
    assert seen + [batch["names"] for batch in rest] == whole
    assert sorted(name for batch in whole for name in batch) == sorted(names([items[index] for index in range(9)]))


@pytest.mark.parametrize("start", ["fork", pytest.param("spawn", marks=pytest.mark.slow)])
def test_worker_processes_of_torch_write_what_they_made_before_they_end(tmp_path, start):
    root, folder = write_pictures(tmp_path / "pictures"), tmp_path / "cache"
    items = open_cached(Pictures(root), folder)
    loader = DataLoader(items, batch_size=None, num_workers=2, multiprocessing_context=start)
    assert_same_items(list(loader), Pictures(root))
    again = Pictures(root)
    assert_same_items(open_cached(again, folder), Pictures(root))
    assert len(again.made) == 5


class Numbers:
    """Items that are made of no file."""

    def __init__(self, value: Any = 0, noise: bool = False) -> None:
        self.value, self.noise = value, noise

    def __len__(self) -> int:
        return 3

    def __getitem__(self, index: int) -> Any:
        return self.value if not self.noise else np.random.default_rng().normal(size=3)


def test_items_of_no_file_are_known_by_their_keys(tmp_path):
    items = cached(Numbers([1, (2.5, "a")]), lambda index: f"number {index}", folder=tmp_path)
    assert [items[index] for index in (0, 1, -1)] == 3 * [[1, (2.5, "a")]]
    with pytest.raises(IndexError):
        items[3]
    other = cached(Numbers(7), lambda index: f"number {index}", folder=tmp_path)
    assert other[1] == 7


def test_what_cannot_be_cached_is_rejected(tmp_path):
    unordered, pair = {2}, (tmp_path / "a", tmp_path / "b")
    objects, keyed = np.array([object()]), {(1, 2): 3}
    for dataset, value in (
        (Numbers(noise=True), "Numbers"),
        (Numbers({"a": [1, unordered]}), unordered),
        (Numbers(objects), objects),
        (Numbers(keyed), keyed),
        ([], 0),
    ):
        with rejects(ConfigError, setting="cached.dataset") as caught:
            cached(dataset, str, folder=tmp_path)  # type: ignore[arg-type]
        assert caught.value.value is value
    with rejects(ConfigError, setting="cached.key", value=pair):
        cached(Numbers(), lambda index: pair, folder=tmp_path)
    with rejects(ConfigError, setting="cached.listed", value="samples"):
        cached(Numbers(), str, listed=["samples"], folder=tmp_path)
    assert not [path for path in tmp_path.iterdir() if path.is_dir()]


def test_tensors_and_arrays_that_hold_more_than_numbers_are_not_kept_as_plain_ones():
    class Boxes(torch.Tensor):
        pass

    for value in (
        np.ma.masked_array([1, 2], [False, True]),
        torch.ones(2).as_subclass(Boxes),
        torch.eye(2).to_sparse(),
        torch.ones(2, dtype=torch.complex64),
    ):
        with rejects(ConfigError, setting="cached.dataset") as caught:
            pack_item(value)
        assert caught.value.value is value
    assert torch.equal(unpack_item(pack_item(torch.ones(2, dtype=torch.complex64).conj().imag)), torch.zeros(2))


class Locked(Numbers):
    """Holds what two runs cannot compare, and leaves it out where it is pickled."""

    def __init__(self, value: int) -> None:
        super().__init__(value)
        self.lock = threading.Lock()

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "lock"}


class Slotted:
    __slots__ = ("value",)

    def __init__(self, value: int) -> None:
        self.value = value

    def __len__(self) -> int:
        return 1

    def __getitem__(self, index: int) -> int:
        return self.value


def test_what_a_dataset_would_pickle_is_what_its_items_depend_on(tmp_path):
    assert cached(Locked(1), str, listed=["lock"], folder=tmp_path)[0] == 1
    for make in (Locked, Slotted, lambda value: [value]):
        listed = ["lock"] if make is Locked else []
        assert [cached(make(value), str, listed=listed, folder=tmp_path)[0] for value in (1, 2, 1)] == [1, 2, 1]


def test_any_kind_of_integer_is_an_index_and_a_key(tmp_path):
    class Indices(Numbers):
        def __getitem__(self, index: int) -> int:
            return index

    items = cached(Indices(), np.int64, folder=tmp_path)
    found = [items[index] for index in (np.int64(1), torch.tensor(2), -1)]
    assert [(type(item), item) for item in found] == [(int, 1), (int, 2), (int, 2)]
    for index in (3, -4):
        with pytest.raises(IndexError):
            items[index]


def test_a_dataset_with_a_sparse_tensor_is_known_by_its_numbers(tmp_path):
    for scale in (1, 2):
        dataset = Numbers(scale)
        dataset.weights = (scale * torch.eye(2)).to_sparse()  # type: ignore[attr-defined]
        assert cached(dataset, str, folder=tmp_path)[0] == scale
    dataset.weights = torch.Generator()  # type: ignore[attr-defined]
    with rejects(ConfigError, setting="_Making.attributes['weights']", value="torch._C.Generator"):
        cached(dataset, str, folder=tmp_path)


plain = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary()
numbers = arrays.arrays(
    arrays.integer_dtypes() | arrays.floating_dtypes(sizes=(16, 32, 64)) | arrays.boolean_dtypes(),
    arrays.array_shapes(min_dims=0, min_side=0, max_side=3),
)
values = st.recursive(
    plain | numbers,
    lambda inner: st.lists(inner) | st.tuples(inner, inner) | st.dictionaries(st.text() | st.integers(), inner),
    max_leaves=8,
)


@given(values)
def test_every_value_comes_back_as_it_was(value):
    assert same(unpack_item(pack_item(value)), value)


LONG = 2 * MANY


@pytest.mark.parametrize(
    "value",
    [
        list(range(-LONG, LONG)),
        tuple(map(float, range(LONG))),
        [0.1, float("inf"), -0.0] * LONG,
        # What is not all of one kind, or too large, stays as it is.
        [True] * LONG,
        [1.5] * LONG + [2],
        [2**63] * LONG,
        # After other bytes, which need not be a multiple of eight.
        {"mask": b"abc", "tokens": list(range(LONG)), "boxes": [list(range(LONG)), b"d", list(range(LONG))]},
    ],
)
def test_long_lists_of_numbers_come_back_as_they_were(value):
    assert same(unpack_item(pack_item(value)), value)


def test_long_lists_of_numbers_are_kept_as_bytes_and_not_as_text():
    assert 8000 < len(pack_item([1] * 1000)) < 8100


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.bool, torch.int64])
def test_tensors_keep_their_type_and_shape(dtype):
    for shape in ((), (0, 3), (2, 3)):
        tensor = torch.ones(shape).to(dtype).mT if len(shape) else torch.ones(shape).to(dtype)
        found = unpack_item(pack_item(tensor))
        assert found.dtype == dtype
        assert torch.equal(found, tensor)


def same(one: Any, other: Any) -> bool:
    if isinstance(other, np.ndarray | np.generic):
        return one.dtype == other.dtype and one.shape == other.shape and one.tobytes() == other.tobytes()
    if isinstance(other, list | tuple):
        return type(one) is type(other) and len(one) == len(other) and all(map(same, one, other))
    if isinstance(other, dict):
        return list(one) == list(other) and all(same(one[key], other[key]) for key in other)
    return type(one) is type(other) and one == other

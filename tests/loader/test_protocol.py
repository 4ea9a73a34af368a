"""Which of the loader's protocols a dataset fulfils decides how its batches are made."""

from typing import Any

from test_loader import open_split

from ocr.datasets import DBCollateFN, OCRWebDataset
from ocr.datasets.webstream import OCRWebStream
from ocr.loader.batch_maker import CacheBatchMaker, ItemBatchMaker, choose_maker
from ocr.loader.protocol import HasEpochs, IndexedPages, ItemDataset, Pages, ShardedPages, StreamedPages


def offers(kind: type, *protocols: Any) -> bool:
    return all(hasattr(kind, name) for protocol in protocols for name in vars(protocol) if not name.startswith("_"))


def test_a_folder_is_indexed_and_defines_no_order(synthetic):
    dataset = open_split(synthetic, "val")
    assert isinstance(dataset, ItemDataset)
    assert isinstance(dataset, IndexedPages)
    assert not isinstance(dataset, ShardedPages | StreamedPages)


def test_shards_define_their_order_and_streams_have_no_length():
    assert offers(OCRWebDataset, ShardedPages)
    assert offers(OCRWebStream, StreamedPages)
    assert not hasattr(OCRWebStream, "peek")


def test_a_list_of_items_is_a_dataset_and_nothing_more():
    items: list[Any] = [{}]
    assert isinstance(items, ItemDataset)
    assert not isinstance(items, Pages | HasEpochs)


def test_pages_are_written_into_slots_unless_the_collate_function_needs_other_maps(synthetic):
    dataset = open_split(synthetic, "val")
    assert isinstance(choose_maker(dataset, None, None), CacheBatchMaker)
    assert isinstance(choose_maker(dataset, DBCollateFN(), None), CacheBatchMaker)
    for collate_fn in (DBCollateFN(shrink_ratio=0.5), lambda items: {"count": len(items)}):
        assert isinstance(choose_maker(dataset, collate_fn, None), ItemBatchMaker)

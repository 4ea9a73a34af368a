"""The receipt of a shard: one that is damaged in any way counts as none, and the shard is written again."""

import json

import pytest

from ocr.pipeline.page_index import Signature
from ocr.shards.index import Shard, StoredSample
from ocr.tools.convert.shard_receipt import ShardReceipt

SAMPLE = StoredSample("00000000", "a.jpg", 0, {"jpg": (512, 3)}, "aa", "bb")
RECEIPT = ShardReceipt(Shard("val-000000.tar", 9, "cc", 1), (SAMPLE,), {}, "dd", Signature(1, 2, 3, 4))


def test_a_receipt_comes_back_as_it_was():
    assert ShardReceipt.from_json(RECEIPT.to_json().encode()) == RECEIPT


CHANGES = {
    "a key that is a number": lambda document: document["samples"][0].__setitem__(0, 7),
    "an infinite offset": lambda document: document["samples"][0][3].update(jpg=[float("inf"), 3]),
    "skipped is a list": lambda document: document.update(skipped=[]),
    "a shard that is a number": lambda document: document.update(shard=3),
    "a shard without a name": lambda document: document["shard"].update(name=None),
    "nesting without end": lambda document: document.update(recipe="DEEP"),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_damaged_receipt_counts_as_none(change):
    document = json.loads(RECEIPT.to_json())
    change(document)
    text = json.dumps(document).replace('"DEEP"', "[" * 100_000)
    assert ShardReceipt.from_json(text.encode()) is None

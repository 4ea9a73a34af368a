"""The fingerprint of a dataset changes with its pages and their words, and with nothing else."""

import json

from ocr.datasets import DBTransforms, OCRDataset
from ocr.datasets.data_fingerprint import fingerprint_data


def fingerprint(folder) -> dict:
    return fingerprint_data(OCRDataset(folder / "images" / "val", folder / "jsons" / "val.json", DBTransforms([])))


def test_a_fingerprint_follows_the_words_and_not_the_folder(synthetic, dataset_folder):
    before = fingerprint(synthetic)
    assert before["pages"] == 6
    assert fingerprint(dataset_folder) == before
    file = dataset_folder / "jsons" / "val.json"
    annotation = json.loads(file.read_text())
    next(iter(next(iter(annotation["images"].values()))["words"].values()))["points"][0][0] += 5
    file.write_text(json.dumps(annotation))
    assert fingerprint(dataset_folder)["fingerprint"] != before["fingerprint"]


def test_other_data_has_none():
    assert fingerprint_data([1, 2, 3]) == {}

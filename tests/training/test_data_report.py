"""DataReport: the end of an epoch tells what happened to its pages."""

import json

import pytest
from rich.console import Console
from test_training import settings

from ocr.datasets.data_module import OCRDataModule
from ocr.jobs.train import build_module, build_trainer
from ocr.training.callbacks.data_report import DataReport, describe


def lines_of_a_run(data, out, *overrides) -> list[str]:
    config = settings(data, out, "callbacks.data_report=null", *overrides)
    shown = Console(record=True, width=200)
    trainer = build_trainer(config)
    trainer.callbacks.append(DataReport(shown))
    trainer.fit(build_module(config), datamodule=OCRDataModule(config))
    return shown.export_text().splitlines()


def test_hits_and_misses_are_told_at_every_epoch_end_and_for_validation_only_when_there_was_one(synthetic, tmp_path):
    limits = f"cache.folder={tmp_path / 'cache'}", "cache.max_bytes=20MB"
    lines = lines_of_a_run(synthetic, tmp_path, *limits, "trainer.max_epochs=2", "trainer.check_val_every_n_epoch=2")
    places = [line for line in lines if "are kept in" in line]
    assert [line.split(" (")[0] for line in places] == [
        f"{split}: pages are kept in {tmp_path / 'cache' / 'store'}" for split in ("train", "val")
    ]
    assert all(line.endswith("of 20.0 MB, cache.max_bytes=20MB)") for line in places)
    # At 64 pixels some text vanishes, which is reported after this.
    assert ["; ".join(line.split("; ")[:2]) for line in lines if line not in places] == [
        "train: 8 pages; cache 0 hits, 8 misses, 0 invalid",
        "train: 8 pages; cache 8 hits, 0 misses, 0 invalid",
        "val: 6 pages; cache 0 hits, 6 misses, 0 invalid",
    ]


def test_what_was_skipped_is_told_with_its_names(dataset_folder, tmp_path):
    broken = sorted((dataset_folder / "images" / "val").iterdir())[2]
    broken.write_bytes(b"nothing")
    settings = ("trainer.max_epochs=1", "trainer.limit_train_batches=1", "on_bad_sample=skip", "data.cache=off")
    lines = lines_of_a_run(dataset_folder, tmp_path, *settings)
    assert lines[0].startswith("train: 2 pages")
    assert lines[1].endswith(f"1 skipped ({broken.name})")


@pytest.mark.parametrize("count", [2, 5])
def test_only_the_first_few_files_are_named(dataset_folder, tmp_path, count):
    for page in sorted((dataset_folder / "images" / "val").iterdir())[:count]:
        page.write_bytes(b"nothing")
    file = dataset_folder / "jsons" / "val.json"
    data = OCRDataModule(settings(dataset_folder, tmp_path, "on_bad_sample=skip", "data.cache=off"))
    dataset = data.dataset("val")
    assert len(json.loads(file.read_text())["images"]) == len(dataset)
    for index in range(len(dataset)):
        dataset[index]
    text = describe(dataset, dataset.ledger.totals())
    assert f"; {count} skipped (" in text
    assert ("..." in text) == (count > 3)

"""A run's folder as a result: curves over epochs, also of a resumed or unfinished run, and settings as written."""

import pytest
from rejection import rejects
from sample_runs import HARDEST, metrics, write_metrics, write_run

from ocr.errors import DataError
from ocr.report.runs import read_run


def test_a_run_is_read_with_its_curves_settings_pages_and_checkpoints(tmp_path, monkeypatch):
    monkeypatch.setenv("SECRET", "hunter2")
    run = read_run(write_run(tmp_path / "run"))
    assert run.name == "run"
    assert run.command == "ocr train 'dataset_base_path=/data/<pages>' model.channels=64"
    assert [epoch["epoch"] for epoch in run.epochs] == list(range(1, 7))
    last = run.epochs[-1]
    assert (last["hmean"], last["samples_per_s"]) == (pytest.approx(0.9 - 0.5 / 6), 12.5)
    assert last["seconds"] == {"data_wait": 0.2, "forward": 3.0, "backward": 6.8}
    assert "hmean" not in run.epochs[0]
    assert run.hardest == HARDEST
    assert run.checkpoints == [("best.ckpt", 1000)]
    assert run.settings["model.channels"] == "64"
    assert run.settings["sizes"] == "[1, 2]"
    assert run.settings["stages.0.p"] == "0.5"
    assert run.settings["resume"] == "null"
    assert "hunter2" not in repr(run)


def test_a_loss_is_placed_by_the_epochs_trained_until_its_step(tmp_path):
    run = read_run(write_run(tmp_path / "run", epochs=2, steps=4))
    assert run.losses == [(0.5, 4.0), (1.0, 2.0), (1.5, pytest.approx(8 / 6)), (2.0, 1.0)]


def test_a_resumed_run_replaces_what_it_repeats(tmp_path):
    folder = tmp_path / "run"
    write_metrics(folder, 0, metrics(range(4), 4, 0.9, 0.2))
    again = [
        row | ({"samples_per_second": 99} if "samples_per_second" in row else {})
        for row in metrics(range(3, 6), 4, 0.9, 0.2)
    ]
    write_metrics(folder, 1, again)
    # By number, not by name: 10 comes after 2.
    write_metrics(folder, 10, metrics(range(5, 6), 4, 0.7, 0.2))
    run = read_run(folder)
    assert [epoch["samples_per_s"] for epoch in run.epochs] == [12.5, 12.5, 12.5, 99, 99, 12.5]
    assert run.epochs[-1]["hmean"] == pytest.approx(0.7 - 0.5 / 6)
    assert [x for x, _ in run.losses] == [at / 2 for at in range(1, 13)]


def test_the_parts_of_a_run_that_was_resumed_often_are_read_by_their_number(tmp_path):
    for version in (3, 11, 0, 7, 10, 1, 9, 4, 2, 8, 5, 6):
        write_metrics(tmp_path / "run", version, metrics(range(version, version + 1), 4, 0.9, 0.2))
    # A part replaces what it begins again: in another order, later epochs would be lost.
    assert [epoch["epoch"] for epoch in read_run(tmp_path / "run").epochs] == list(range(1, 13))


def test_an_unfinished_run_is_shown_as_far_as_it_got(tmp_path):
    file = write_metrics(tmp_path / "run", 0, metrics(range(3), 4, 0.9, 0.2)[:-1])
    text = file.read_text()
    file.write_text(text[: text.rindex("\n2,") + 3])
    run = read_run(tmp_path / "run")
    assert [epoch["epoch"] for epoch in run.epochs] == [1, 2]
    # The third epoch is taken to be as long as the second.
    assert run.losses[-1][0] == pytest.approx(2.5)
    assert run.settings == {}
    assert run.hardest is None
    assert run.checkpoints == []


def test_a_run_without_an_epoch_has_no_curves(tmp_path):
    write_metrics(tmp_path / "run", 0, metrics(range(1), 4, 0.9, 0.2)[:2])
    run = read_run(tmp_path / "run")
    assert (run.losses, run.epochs) == ([], [])


def test_what_is_no_run_or_is_damaged_is_told_with_its_cure(tmp_path):
    with rejects(DataError, path=tmp_path):
        read_run(tmp_path)
    run = write_run(tmp_path / "run")
    (run / "worst_pages.json").write_text("{}")
    with rejects(DataError, value={}, path=run / "worst_pages.json"):
        read_run(run)
    (run / "worst_pages.json").unlink()
    (run / ".hydra/config.yaml").write_text("a: [")
    with rejects(DataError, path=run / ".hydra/config.yaml"):
        read_run(run)
    (run / "csv/version_0/metrics.csv").write_bytes(b"epoch,step\n\xff,1\n")
    with rejects(DataError, path=run / "csv/version_0/metrics.csv"):
        read_run(run)


@pytest.mark.parametrize(("row", "counts"), [("1e300,3,0.5", (1e300, 3)), ("0,1e19,0.5", (0, 1e19))])
def test_numbers_that_cannot_be_epochs_or_steps_are_named_with_their_file(tmp_path, row, counts):
    run = write_run(tmp_path / "run")
    (run / "csv/version_0/metrics.csv").write_text(f"epoch,step,val/hmean\n{row}\n")
    with rejects(DataError, value=counts, path=run / "csv/version_0/metrics.csv"):
        read_run(run)


@pytest.mark.parametrize("text", ["a: ${oc.e", "a: ${}", "a: &again [*again]"])
def test_settings_that_refer_to_nothing_or_to_themselves_are_named_with_their_file(tmp_path, text):
    run = write_run(tmp_path / "run")
    (run / ".hydra/config.yaml").write_text(text)
    with rejects(DataError, path=run / ".hydra/config.yaml"):
        read_run(run)


def test_settings_of_another_program_have_no_epochs(tmp_path):
    run = write_run(tmp_path / "run")
    (run / ".hydra/config.yaml").write_text("trainer: mine")
    assert read_run(run).max_epochs is None

"""A job ends with one exit status for every known error, wherever it comes from."""

import sys

import pytest
from refusal import refuses
from rich.console import Console

from ocr.errors import DataError
from ocr.jobs.run import run_job


@pytest.fixture
def arguments(tmp_path, monkeypatch):
    """Sets the command line of this process, in an empty working directory."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HYDRA_FULL_ERROR", raising=False)
    return lambda *words: monkeypatch.setattr(sys, "argv", ["job", "hydra.run.dir=run", *words])


def end_of(job, name: str = "train") -> int:
    with pytest.raises(SystemExit) as end:
        run_job(name, job, "interrupted: run it again")
    return end.value.code


def fail(error: BaseException):
    def job(config, console):
        raise error

    return job


def test_a_job_gets_the_config_of_its_command_line(arguments, tmp_path):
    seen = []
    arguments("seed=7", "trainer.max_epochs=3")
    run_job("train", lambda config, console: seen.extend([config.seed, config.trainer.max_epochs, type(console)]))
    assert seen == [7, 3, Console]
    assert (tmp_path / "run" / "train.log").is_file()


@pytest.mark.parametrize("error", [DataError("page.jpg: [/red] is damaged"), OSError("page.jpg: [/red] is damaged")])
def test_a_known_error_of_a_job_is_one_line_and_exit_status_2(arguments, capfd, error):
    arguments()
    assert end_of(fail(error)) == 2
    assert capfd.readouterr().err == "error: page.jpg: [/red] is damaged\n"


def test_an_error_of_the_config_is_the_same(arguments, capfd):
    for words, fields in (
        (("model=litee",), {"setting": "model", "value": "litee"}),
        (("trainer.max_epoch=1",), {"setting": "trainer.max_epoch"}),
        (("threads=null",), {"setting": "threads", "value": None}),
        (("boxes=null",), {"setting": "boxes", "value": None}),
        (("use_dali=maybe",), {"setting": "use_dali", "value": "maybe"}),
        (("--config-dir", "nowhere"), {"setting": "--config-dir", "path": "nowhere"}),
    ):
        arguments(*words)
        with refuses(**fields):
            run_job("train", fail(AssertionError("the job ran")))
        shown = capfd.readouterr().err
        assert shown.startswith("error: ")
        assert shown.count("\n") == 1


def test_a_setting_that_points_nowhere_is_named_when_the_job_reads_it(arguments, capfd):
    arguments("seed=${nosuch}")
    assert end_of(lambda config, console: config.seed) == 2
    assert "nosuch" in capfd.readouterr().err


def test_a_bug_keeps_its_traceback(arguments):
    arguments()
    with pytest.raises(ZeroDivisionError):
        run_job("train", lambda config, console: 1 / 0)


def test_an_interrupt_is_exit_status_130(arguments, capfd):
    arguments()
    assert end_of(fail(KeyboardInterrupt())) == 130
    assert capfd.readouterr().err == "interrupted: run it again\n"


def test_the_number_that_a_job_returns_is_the_exit_status(arguments):
    arguments()
    assert end_of(lambda config, console: 1) == 1
    run_job("train", lambda config, console: 0)


def test_a_job_finds_configs_in_the_folder_of_config_dir(arguments, tmp_path):
    folder = tmp_path / "own" / "experiment"
    folder.mkdir(parents=True)
    (folder / "mine.yaml").write_text("# @package _global_\nseed: 9\n")
    arguments("--config-dir", str(folder.parent), "experiment=mine")
    seen = []
    run_job("train", lambda config, console: seen.append(config.seed))
    assert seen == [9]

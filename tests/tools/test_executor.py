"""Threads and Ray do the same work: same results, same files, same errors, whoever is killed; and nothing runs on."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest
from executor_work import (
    HERE,
    PATIENCE_SECONDS,
    ROOT,
    Begin,
    FailAt,
    Stay,
    begun,
    die,
    killed,
    members_of,
    nothing_runs,
    own_session,
    ray_cluster,
    read_text,
    square,
    wait_until,
)
from rejection import rejects

from ocr.atomic import partial_prefix
from ocr.errors import ConfigError, ImageError, MissingExtraError, StageError
from ocr.tools import executor as executors
from ocr.tools.executor import run_tasks, started

LONG_SECONDS = 600
"""Nobody waits for it: what takes so long has to be left."""


@pytest.fixture(scope="module")
def traps(tmp_path_factory):
    """A folder where files name calls over which a worker of Ray is killed."""
    folder, site = tmp_path_factory.mktemp("traps"), tmp_path_factory.mktemp("site")
    (site / "sitecustomize.py").write_text(f"import executor_work\nexecutor_work.watch({str(folder)!r})\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join([str(site), str(HERE)]))
        patch.delenv("RAY_ADDRESS", raising=False)
        yield folder


@pytest.fixture(scope="module")
def ray_here(traps):
    """One Ray for all tests."""
    ray = pytest.importorskip("ray")
    # Workers of a command that a shell runs in the background would not hear that they are to leave.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    with started("ray", 2):
        yield ray
    signal.signal(signal.SIGINT, before)


@pytest.fixture(params=["local", pytest.param("ray", marks=pytest.mark.slow)])
def executor(request):
    if request.param == "ray":
        request.getfixturevalue("ray_here")
    return request.param


def test_ray_does_the_work_and_keeps_the_type_of_an_error(ray_here, tmp_path):
    """The smoke test of Ray; the others are slow."""
    assert sorted(run_tasks(square, range(20), "ray", 2, chunk=3)) == [(number, number**2) for number in range(20)]
    with pytest.raises(ImageError) as caught:
        list(run_tasks(FailAt(Begin(tmp_path, 0.05), 3), range(40), "ray", workers=2, chunk=5))
    assert type(caught.value) is ImageError
    assert "nowhere.jpg" in str(caught.value.__cause__)
    assert nothing_runs(tmp_path)


@pytest.mark.parametrize(("workers", "chunk"), [(None, 1), (1, 3), (2, 100)])
def test_every_task_is_done_once_and_keeps_its_number(executor, workers, chunk):
    results = list(run_tasks(square, range(50), executor, workers, chunk=chunk))
    assert sorted(results) == [(number, number * number) for number in range(50)]
    assert list(run_tasks(square, [], executor, workers)) == []


def test_results_come_as_they_get_done_and_work_waits_for_whoever_takes_them(executor, tmp_path):
    with closing(run_tasks(Begin(tmp_path, 0.05), range(100), executor, workers=2, chunk=4)) as results:
        next(results)
        time.sleep(0.6)
        assert len(begun(tmp_path)) <= 2 * 2 * 4
    assert nothing_runs(tmp_path)


def test_an_error_keeps_its_type_and_words_and_ends_the_work(executor, tmp_path):
    with pytest.raises(ImageError) as caught:
        list(run_tasks(FailAt(Begin(tmp_path, 0.2), 3), range(4000), executor, workers=2, chunk=500))
    assert type(caught.value) is ImageError
    assert str(caught.value) == "page 3: cannot be opened"
    assert caught.value.__cause__ is not None
    assert "nowhere.jpg" in str(caught.value.__cause__)
    # The other worker has left its 500 tasks, which take 100 seconds.
    assert len(begun(tmp_path)) < 500
    assert nothing_runs(tmp_path)


def interrupt(tasks, moment=lambda: True) -> None:
    with closing(tasks) as results:
        assert next(results) == (0, 0)
        assert wait_until(moment)
        raise KeyboardInterrupt


def test_an_interrupted_loop_leaves_nothing_running(executor, tmp_path):
    with pytest.raises(KeyboardInterrupt):
        interrupt(run_tasks(Begin(tmp_path, 0.2), range(200), executor, workers=2))
    assert len(begun(tmp_path)) <= 2 * 2
    assert nothing_runs(tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize(("work", "ending"), [(Begin, ".left"), (Stay, ".begun")])
def test_a_ray_worker_leaves_what_it_is_doing_or_is_killed(ray_here, tmp_path, monkeypatch, work, ending):
    monkeypatch.setattr(executors, "STOP_SECONDS", PATIENCE_SECONDS if work is Begin else 1)
    tasks = run_tasks(work(tmp_path, LONG_SECONDS), range(200), "ray", workers=2)
    with pytest.raises(KeyboardInterrupt):
        interrupt(tasks, lambda: list(tmp_path.glob("0001-*.begun")))
    first, second = map(Path, begun(tmp_path))
    assert (first.suffix, second.suffix) == (".done", ending)
    worker = Path("/proc", second.stem.partition("-")[2])
    assert ending == ".left" or wait_until(lambda: not worker.exists())


def test_relative_paths_mean_the_same_to_every_worker(executor, tmp_path, monkeypatch):
    (tmp_path / "here.txt").write_text("found")
    monkeypatch.chdir(tmp_path)
    assert list(run_tasks(read_text, ["here.txt"], executor)) == [(0, "found")]


@pytest.mark.slow
def test_a_ray_that_was_running_keeps_running(ray_here):
    with started("ray"):
        assert list(run_tasks(square, [3], "ray")) == [(0, 9)]
    assert ray_here.is_initialized()


@pytest.mark.slow
def test_work_that_kills_every_worker_is_named(ray_here, monkeypatch):
    monkeypatch.setattr(executors, "RETRIES", 0)
    with rejects(StageError, setting="executor", value="ray"):
        list(run_tasks(die, [0], "ray"))


def test_an_address_where_nobody_listens_is_named_at_once(ray_here, monkeypatch):
    monkeypatch.setattr(ray_here, "is_initialized", lambda: False)
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:1")
    with rejects(ConfigError, setting="RAY_ADDRESS", value="127.0.0.1:1"):
        list(run_tasks(square, [1], "ray"))


def test_what_cannot_work_is_refused_when_it_is_asked_for():
    with rejects(ConfigError, setting="executor", value="rya"):
        run_tasks(square, [1], "rya")
    with rejects(ConfigError, setting="workers", value=0):
        run_tasks(square, [1], workers=0)


def test_without_ray_its_extra_is_named_and_the_local_executor_works(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with rejects(MissingExtraError, setting="ray", value="ray") as caught:
        run_tasks(square, [1], "ray")
    assert "glyphfeed[ray]" in str(caught.value)
    assert list(run_tasks(square, [2])) == [(0, 4)]


def pages_of(data: Path, split: str) -> list[str]:
    return sorted(path.name for path in (data / "images" / split).iterdir())


def write_maps(data: Path, split: str, executor: str, on_bad_sample: str = "raise"):
    from ocr.datasets import DBTransforms, OCRDataset
    from ocr.pipeline.prefix import Letterbox
    from ocr.tools.preprocess import preprocess_maps

    pages = (data / "images" / split, data / "jsons" / f"{split}.json")
    dataset = OCRDataset(*pages, DBTransforms([Letterbox(160)]), on_bad_sample=on_bad_sample)
    return preprocess_maps(dataset, workers=2, show_progress=False, executor=executor)


@pytest.mark.slow
def test_maps_are_the_same_of_every_executor_and_whoever_is_killed(ray_here, traps, dataset_folder):
    from convert_pages import files

    folder = write_maps(dataset_folder, "train", "local").folder
    maps = files(folder)
    assert len(maps) == 8
    shutil.rmtree(folder)
    # When the maps of a page are written, but not yet in their place.
    with killed(traps, f"os.rename {partial_prefix(Path(pages_of(dataset_folder, 'train')[3]).with_suffix('.npz'))}"):
        assert write_maps(dataset_folder, "train", "ray").written == 8
    assert files(folder) == maps


def test_a_page_that_cannot_be_read_is_listed_by_every_executor(executor, dataset_folder):
    victim = pages_of(dataset_folder, "val")[2]
    (dataset_folder / "images/val" / victim).write_bytes(b"")
    with rejects(ImageError, path=dataset_folder / "images/val" / victim):
        write_maps(dataset_folder, "val", executor)
    summary = write_maps(dataset_folder, "val", executor, on_bad_sample="skip")
    assert list(summary.failed) == [victim]
    assert "is empty" in summary.failed[victim]


def damage(data: Path) -> None:
    empty, cut, *_ = sorted((data / "images/train").iterdir())
    empty.write_bytes(b"")
    cut.write_bytes(cut.read_bytes()[:5000])
    file = data / "jsons/train.json"
    annotation = json.loads(file.read_text())
    for page in annotation["images"].values():
        next(iter(page["words"].values()))["points"][0] = [-40, 9000]
    file.write_text(json.dumps(annotation))


@pytest.mark.slow
@pytest.mark.parametrize("deep", [False, True])
def test_findings_are_the_same_of_every_executor_and_whoever_is_killed(ray_here, traps, dataset_folder, deep):
    from ocr.tools.doctor import examine

    damage(dataset_folder)
    local = examine(dataset_folder, deep=deep, show_progress=False)
    assert {"empty-file", "truncated-image"} <= {finding.kind for finding in local.findings}
    assert any(split.frames for split in local.splits)
    with killed(traps, f"open {pages_of(dataset_folder, 'train')[4]}"):
        ray = examine(dataset_folder, deep=deep, show_progress=False, executor="ray")
    assert ray.findings == local.findings
    assert [split.images for split in ray.splits] == [split.images for split in local.splits]
    assert [split.frames for split in ray.splits] == [split.frames for split in local.splits]


@pytest.mark.slow
def test_shards_are_the_same_of_every_executor_and_whoever_is_killed(ray_here, traps, tmp_path):
    from convert_pages import convert, edit_page, files, verify, write_pages

    data, out, settings = write_pages(tmp_path / "pages"), tmp_path / "out", {"samples_per_shard": 2}
    convert(data, tmp_path / "local", **settings)
    # In the middle of the second shard.
    with killed(traps, "open it's [a] bill"):
        convert(data, out, executor="ray", workers=2, **settings)
    assert files(out) == files(tmp_path / "local")
    edit_page(data, 3)
    found = verify(data, out, executor="ray", workers=2)
    assert len(found.problems) == 1
    assert found == verify(data, out)


@pytest.mark.slow
def test_a_cluster_at_an_address_does_the_work_and_stdout_is_for_the_findings(traps, dataset_folder):
    from ocr.tools.doctor import examine

    pytest.importorskip("ray")
    damage(dataset_folder)
    expected = json.loads(examine(dataset_folder, show_progress=False).to_json())
    line = [sys.executable, "-m", "ocr.cli", "doctor", dataset_folder.name, "--json", "-", "--executor", "ray"]
    with (
        ray_cluster(os.environ["PYTHONPATH"]) as environment,
        killed(traps, f"open {pages_of(dataset_folder, 'train')[4]}"),
    ):
        environment = os.environ | environment | {"PYTHONPATH": str(ROOT)}
        done = subprocess.run(line, env=environment, cwd=dataset_folder.parent, capture_output=True, text=True)
    assert done.returncode == 1, done.stderr
    assert json.loads(done.stdout) == expected | {"data": dataset_folder.name}


@pytest.mark.slow
def test_ctrl_c_ends_the_ray_that_was_started_for_the_work(traps, tmp_path):
    pytest.importorskip("ray")
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), str(HERE)])}
    line = [sys.executable, "-c", f"import executor_work; executor_work.begin_until_interrupted({str(tmp_path)!r})"]
    with own_session(line, env=environment, stderr=subprocess.PIPE) as process:
        assert wait_until(lambda: len(begun(tmp_path)) > 10 or process.poll() is not None)
        workers = {int(Path(name).stem.partition("-")[2]) for name in begun(tmp_path)}
        os.killpg(process.pid, signal.SIGINT)
        said = process.communicate(timeout=PATIENCE_SECONDS)[1]
        assert process.returncode == -signal.SIGINT, said
        assert workers
        assert process.pid not in workers
        assert wait_until(lambda: not members_of(process.pid))
    assert nothing_runs(tmp_path)

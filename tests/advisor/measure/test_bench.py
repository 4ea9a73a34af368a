"""`ocr bench`: every configuration gives the same pages, what cannot run says why, and nothing is left behind."""

import csv
import os
import signal
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import torch
from omegaconf import OmegaConf
from rejection import rejects
from typer.testing import CliRunner

from ocr.advisor.catalogue import Configuration, bench_configurations, choose, default_workers
from ocr.advisor.measure.bench import BenchResult, BenchSettings, Measurement, bench
from ocr.advisor.measure.bench_data import link_pages
from ocr.advisor.measure.bench_epochs import compose, touch
from ocr.advisor.measure.process_memory import MemoryWatch
from ocr.advisor.measure.temporary_folder import temporary_folder
from ocr.advisor.measure.timed_batches import Pass
from ocr.advisor.report.result_file import read_result
from ocr.cli import app
from ocr.errors import ConfigError
from ocr.jobs.compose import compose_training
from ocr.system import memory_bytes

ROOT = Path(__file__).resolve().parents[3]
TINY = ("transforms.size=64", "dataloaders.val_dataloader.batch_size=2", "dataloaders.train_dataloader.batch_size=2")


def overrides(data: Path, *more: str) -> list[str]:
    return [f"dataset_base_path={data}", "trainer.accelerator=cpu", *TINY, *more]


def run(data: Path, folder: Path, *names: str, ticks: list[str] | None = None, **settings) -> BenchResult:
    chosen = choose(bench_configurations([0, 1, 2], with_model=True), names)
    told = ticks.append if ticks is not None else lambda what: None
    return bench(overrides(data), chosen, BenchSettings(folder=str(folder), **{"rounds": 1} | settings), told)


def reasons(found: BenchResult) -> dict[str, str]:
    return {row.name: row.skipped for row in found.measurements if row.skipped is not None}


def files_below(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*"))


STORED = {
    *("stored maps", "preload_maps", "preload_images", "prenormalize"),
    *("prefix cache", "auto cache", "tensor cache", "raw shards", "ready shards"),
}
ALL = tuple(one.name for one in bench_configurations([0, 2]))


@pytest.mark.parametrize(
    "names",
    [("stored maps", "ready shards", "0 workers"), pytest.param(ALL, marks=pytest.mark.slow)],
    ids=["some", "all"],
)
def test_configurations_of_validation_give_all_pages(synthetic, tmp_path, names):
    before = files_below(synthetic)
    found = run(synthetic, tmp_path / "work", *names)
    without_dali = find_spec("nvidia.dali") is None if find_spec("nvidia") else True
    assert set(reasons(found)) == ({"DALI"} & set(names) if without_dali else set())
    ran = [row for row in found.measurements if row.skipped is None]
    assert {row.pages for row in ran} == {6}
    for row in ran:
        assert row.first_s > 0
        assert min(row.later_s) > 0
        assert row.cpu_s > 0
        assert row.pages_per_s == pytest.approx(6 / row.median_s)
        assert row.memory_bytes is not None
    assert {row.name for row in ran if row.stored_bytes} == STORED & set(names)
    workers = {row.name: (row.engine, row.workers) for row in ran}
    assert workers["0 workers"] == ("threads", 0)
    assert workers.get("2 processes", ("processes", 2)) == ("processes", 2)
    assert not files_below(tmp_path / "work")
    assert files_below(synthetic) == before


@pytest.mark.parametrize(
    "running", [("no cache",), pytest.param(("no cache", "prefix cache", "ready shards"), marks=pytest.mark.slow)]
)
def test_training_leaves_out_what_would_freeze_its_randomness_and_says_so(synthetic, tmp_path, running):
    left_out = ("stored maps", "preload_maps", "prenormalize", "tensor cache", "fp32")
    found = run(synthetic, tmp_path, *running, *left_out, split="train")
    told = reasons(found)
    assert set(told) == set(left_out)
    assert "--split" in told["fp32"]
    assert {row.name: row.pages for row in found.measurements if row.skipped is None} == dict.fromkeys(running, 8)


def test_configurations_take_turns_and_later_epochs_come_from_the_cache(synthetic, tmp_path):
    ticks: list[str] = []
    found = run(synthetic, tmp_path, "no cache", "tensor cache", ticks=ticks, rounds=2)
    turns = [tick for tick in ticks if "round" in tick]
    assert turns == [f"{name}, round {turn} of 2" for turn in (1, 2) for name in ("no cache", "tensor cache")]
    assert all(len(row.later_s) >= 2 for row in found.measurements)
    assert found.baseline == "no cache"
    disk, cached = found.measurements
    assert cached.cpu_s < disk.cpu_s / 2


def test_precisions_are_compared_in_validation_with_the_model(synthetic, tmp_path):
    chosen = choose(bench_configurations([0], with_model=True), ["fp32", "bf16"])
    given = overrides(synthetic, "model=lite", "model.channels=32")
    found = bench(given, chosen, BenchSettings(rounds=1, folder=str(tmp_path)))
    assert not reasons(found)
    assert [row.pages for row in found.measurements] == [6, 6]
    assert found.baseline == "fp32"


def test_pages_that_nobody_can_read_are_rows_with_a_reason(dataset_folder, tmp_path):
    for image in (dataset_folder / "images" / "val").iterdir():
        image.write_bytes(b"no image")
    found = run(dataset_folder, tmp_path, "no cache", "raw shards", "preload_images")
    assert set(reasons(found)) == {"no cache", "raw shards", "preload_images"}
    assert all(reasons(found).values())
    assert all(row.to_dict()["later_s"] == [] and row.to_dict()["median_s"] is None for row in found.measurements)


def test_a_part_of_the_pages_is_from_all_over_the_split(synthetic, tmp_path):
    config = compose_training(overrides(synthetic))
    places = link_pages(config, "val", 3, tmp_path)
    names = sorted(path.name for path in (synthetic / "images" / "val").iterdir())
    assert (places.pages, places.all_pages) == (3, 6)
    assert sorted(path.name for path in places.images.iterdir()) == [names[0], names[2], names[5]]
    assert all(path.is_symlink() for path in places.images.iterdir())


def test_the_caches_of_the_user_are_left_alone(synthetic, tmp_path):
    mine, work = tmp_path / "mine", tmp_path / "work"
    given = overrides(synthetic, f"cache.folder={mine}", "datasets.val_dataset.preload_images=true")
    bench(
        given,
        choose(bench_configurations([0]), ["no cache", "prefix cache"]),
        BenchSettings(rounds=1, folder=str(work)),
    )
    assert not mine.exists()
    assert not files_below(work)


def test_the_users_own_settings_are_kept_and_those_in_question_are_not(synthetic, tmp_path):
    given = overrides(synthetic, "data=base", "datasets.val_dataset.preload_maps=true", "targets.shrink_ratio=0.5")
    places = link_pages(compose_training(given), "val", 0, tmp_path)
    known = {one.name: one for one in bench_configurations([0])}
    disk, raw = (compose(known[name], given, "val", places) for name in ("no cache", "raw shards"))
    assert disk.targets.shrink_ratio == raw.targets.shrink_ratio == 0.5
    assert disk.datasets.val_dataset.preload_maps is False
    assert raw.datasets.val_dataset.tar_path == f"{tmp_path}/raw/val-*.tar"
    assert OmegaConf.select(disk, "datasets.val_dataset.image_path") == str(tmp_path / "images" / "val")


def test_spread_and_median_are_of_the_later_epochs():
    row = Measurement(Configuration("one", "", ()), "val", pages=12)
    row.first_s, row.later = 9.0, [Pass(seconds, 1.0, 12) for seconds in (3.0, 1.0, 2.0)]
    assert (row.median_s, row.spread, row.pages_per_s) == (2.0, 1.0, 6.0)
    row.later = row.later[:2]
    assert row.spread == 1.0
    row.later = row.later[:1]
    assert row.spread is None


def test_workers_are_compared_up_to_the_number_of_cores():
    assert default_workers()[:2] == [0, 1]
    assert default_workers()[-1] <= len(os.sched_getaffinity(0))


def test_memory_of_a_child_counts_too():
    # Far more than the libraries' share of this process, which changes when others load them or end.
    child = "data = b'x' * 400_000_000; print(); input()"
    with MemoryWatch() as watch:
        process = subprocess.Popen([sys.executable, "-c", child], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        process.stdout.readline()
        watch.look()
        process.communicate(b"\n")
    assert 200e6 < watch.growth_bytes < 600e6


def test_memory_that_came_and_went_is_seen_by_the_watch():
    with MemoryWatch() as watch:
        data = bytearray(os.urandom(1)) * 400_000_000
        deadline = time.monotonic() + 600
        while watch.growth_bytes < 200e6 and time.monotonic() < deadline:
            time.sleep(0.01)
        del data
    assert watch.growth_bytes > 200e6
    assert memory_bytes() > 10e6


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.parametrize("order", [(0, 1, 2, 3), (0, 3, 1, 2)])
def test_every_page_of_memory_of_a_batch_is_touched(tmp_path, order):
    shape = (8, 1024, 1024, 3)
    np.zeros(shape, dtype=np.uint8).tofile(tmp_path / "pages")
    images = torch.from_numpy(np.memmap(tmp_path / "pages", mode="c", shape=shape)).permute(order)
    before = resident_bytes()
    touch({"images": images, "shape": [(8, 8)]})
    assert resident_bytes() - before > 24e6


def test_what_a_killed_benchmark_left_goes_with_the_next(tmp_path):
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    left, running = tmp_path / f"bench-{ended.pid}-x", tmp_path / f"bench-{os.getpid()}-x"
    others = tmp_path / "bench-notes"
    for folder in (left, running, others):
        folder.mkdir()
    with temporary_folder(tmp_path) as own:
        assert own.is_dir()
        assert not left.exists()
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([running.name, others.name])


def test_the_command_writes_table_csv_and_json(synthetic, tmp_path):
    files = {kind: tmp_path / f"bench.{kind}" for kind in ("csv", "json")}
    options = ["--only", "no cache,tensor cache,prenormalize", "--rounds", "2", "--folder", str(tmp_path / "work")]
    options += [f"--{kind}={file}" for kind, file in files.items()]
    ran = CliRunner(env={"COLUMNS": "80"}).invoke(app, ["bench", *overrides(synthetic), *options])
    assert ran.exit_code == 0, ran.output
    found = read_result(files["json"])
    assert (found["kind"], found["baseline"], found["data"]["pages"]) == ("bench", "no cache", 6)
    keys = {"name", "overrides", "split", "workers", "first_s", "later_s", "median_s", "spread", "pages_per_s"}
    for row in found["configurations"]:
        assert keys | {"memory_bytes", "skipped"} <= set(row)
        assert row["name"] in ran.stdout
        assert row["spread"] == pytest.approx((max(row["later_s"]) - min(row["later_s"])) / row["median_s"])
    with files["csv"].open(newline="") as lines:
        table = list(csv.DictReader(lines))
    assert [row["name"] for row in table] == [row["name"] for row in found["configurations"]]
    for row, told in zip(table, found["configurations"], strict=True):
        assert list(map(float, row["later_s"].split())) == told["later_s"]
        assert float(row["first_s"]) == told["first_s"]
        assert row["skipped"] == ""
    assert not files_below(tmp_path / "work")


def test_an_interrupted_benchmark_leaves_nothing_behind(synthetic, tmp_path):
    made: list[Path] = []

    def interrupt(what: str) -> None:
        if "round" in what:
            made.extend(files_below(tmp_path / "work"))
            raise KeyboardInterrupt

    chosen = choose(bench_configurations([0]), ["prefix cache", "raw shards"])
    with pytest.raises(KeyboardInterrupt):
        bench(overrides(synthetic), chosen, BenchSettings(rounds=1, folder=str(tmp_path / "work")), interrupt)
    assert made
    assert not files_below(tmp_path / "work")


@pytest.mark.slow
def test_ctrl_c_leaves_nothing_behind(synthetic, tmp_path):
    work = tmp_path / "work"
    options = ["--only", "prefix cache,2 processes", "--rounds", "999", "--folder", str(work)]
    command = [sys.executable, str(ROOT / "scripts" / "benchmark_validation.py"), *overrides(synthetic), *options]
    # A job in the background of a shell ignores Ctrl-C, and so would its children.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    signal.signal(signal.SIGINT, before)
    try:
        deadline = time.monotonic() + 600
        while not list(work.glob("bench-*/caches")) and time.monotonic() < deadline:
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        _, told = process.communicate(timeout=900)
    finally:
        process.kill()
    assert process.returncode == 130
    assert "Traceback" not in told
    assert not files_below(work)


def test_the_list_names_every_configuration():
    shown = CliRunner(env={"COLUMNS": "200"}).invoke(app, ["bench", "--list"])
    assert shown.exit_code == 0
    for one in bench_configurations(with_model=True):
        assert f"\n {one.name} " in shown.output


@pytest.mark.parametrize(
    ("arguments", "setting", "value"),
    [
        (("--only", "no cash"), "--only", "no cash"),
        (("--only", "bf16"), "--only", "bf16"),
        (("--workers", "two"), "--workers", "two"),
        (("data=webdataset",), "datasets.val_dataset", None),
        (("--split", "tset"), "datasets.tset_dataset", None),
    ],
)
def test_what_cannot_work_is_named(synthetic, tmp_path, arguments, setting, value):
    given = [*overrides(synthetic), "--folder", str(tmp_path), "--rounds", "1", *arguments]
    with rejects(ConfigError, setting=setting, value=value):
        CliRunner().invoke(app, ["bench", *given], catch_exceptions=False)
    assert not files_below(tmp_path)


def test_the_exit_status_is_1_where_nothing_ran(dataset_folder, tmp_path):
    for image in (dataset_folder / "images" / "val").iterdir():
        image.write_bytes(b"no image")
    given = [*overrides(dataset_folder), "--folder", str(tmp_path), "--only", "no cache"]
    ended = CliRunner().invoke(app, ["bench", *given])
    assert isinstance(ended.exception, SystemExit)
    assert ended.exit_code == 1
    assert "no cache" in ended.output

"""`ocr profile`: figures are those of the stages themselves, whatever they do with their time."""

import io
import json
import math
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
from rejection import rejects
from rich.console import Console
from typer.testing import CliRunner

from ocr.advisor.measure.profile import Profile, ProfileSettings, measure_stages, profile
from ocr.advisor.measure.stage_timing import DATA_KINDS, Call, StageTimes, Step
from ocr.advisor.report.profile_screen import print_profile
from ocr.advisor.report.result_file import read_result
from ocr.cli import app
from ocr.datasets import DBTransforms, OCRDataset, OCRWebDataset
from ocr.errors import ConfigError, OutputError, StageError
from ocr.jobs.compose import compose_training
from ocr.pipeline.device import Normalize
from ocr.pipeline.prefix import Letterbox
from ocr.pipeline.rng import sample_generator
from ocr.pipeline.stage import Chance, FixedStage
from ocr.pipeline.suffix import ColourJitter, RandomFlip, RandomRotate
from ocr.tools.convert.convert import convert_split
from ocr.tools.convert.plan import make_plan
from ocr.tools.convert.settings import ConvertSettings

CPU = torch.device("cpu")
BATCHES = [[0, 1, 2], [3, 4]]
REPEATS = 3


@dataclass(frozen=True)
class Sleep(FixedStage):
    seconds: float = 0.02

    def __call__(self, sample):
        time.sleep(self.seconds)
        return sample


@dataclass(frozen=True)
class Burn(FixedStage):
    seconds: float = 0.02

    def __call__(self, sample):
        end = time.thread_time() + self.seconds
        while time.thread_time() < end:
            pass
        return sample


@dataclass(frozen=True)
class SleepSometimes(Chance):
    p: float = 0.5

    def choose(self, rng, page):
        return 0.02

    def apply(self, sample, parameters):
        time.sleep(parameters)
        return sample


@dataclass(frozen=True)
class SleepOverWords(FixedStage):
    def __call__(self, sample):
        time.sleep(0.02 if len(sample.polygons) else 0)
        return sample


@dataclass(frozen=True)
class TakeMemory(FixedStage):
    def __call__(self, sample):
        np.ones(48 << 20, dtype=np.uint8)  # Above the threshold of malloc: from the system every time.
        return sample


@dataclass(frozen=True)
class Fail(FixedStage):
    def __call__(self, sample):
        raise ZeroDivisionError("of the stage")


def paths(data: Path, split: str = "train") -> tuple[Path, Path]:
    return data / "images" / split, data / "jsons" / f"{split}.json"


def dataset_of(data: Path, *stages, **settings) -> OCRDataset:
    return OCRDataset(*paths(data), DBTransforms([Letterbox(96), *stages, Normalize()], normalize="device"), **settings)


def profile_of(dataset, engine: str = "threads") -> Profile:
    stages, whole = measure_stages(dataset, CPU, engine, BATCHES, REPEATS)
    return Profile("here", 5, stages, whole, {})


def stage_of(found: Profile, name: str):
    return next(stage for stage in found.stages if stage.name == name)


def test_every_stage_has_a_row_and_shares_sum_to_one(synthetic):
    found = profile_of(dataset_of(synthetic, RandomFlip(), RandomRotate(), ColourJitter()))
    names = ["source", "decode", "Letterbox", "Warp", "ColourJitter", "targets", "slot", "batch", "device"]
    assert [stage.name for stage in found.stages] == names
    kinds = ["source", "fixed", "fixed", "random", "random", "targets", "batch", "batch", "device"]
    assert [stage.kind for stage in found.stages] == kinds
    assert math.isclose(sum(stage.share for stage in found.stages), 1)
    for stage in found.stages:
        assert 0 < stage.min_ms <= stage.mean_ms <= stage.max_ms
        assert stage.calls == REPEATS * (len(BATCHES) if stage.name in ("batch", "device") else 5)
    assert stage_of(found, "Letterbox").bytes_out > 96 * 96 * 3
    assert stage_of(found, "targets").bytes_out > 96 * 96 * (3 + 10)
    assert stage_of(found, "device").bytes_out > 96 * 96 * (12 + 10)


def test_geometry_is_one_row_for_all_stages_that_are_sampled_at_once(synthetic):
    warp = stage_of(profile_of(dataset_of(synthetic, RandomFlip(), RandomRotate(), ColourJitter())), "Warp")
    assert "RandomFlip" in warp.label
    assert "RandomRotate" in warp.label


def test_a_stage_that_sleeps_takes_its_time_and_no_cpu(synthetic):
    sleep = stage_of(profile_of(dataset_of(synthetic, Sleep())), "Sleep")
    assert sleep.min_ms >= 20
    assert sleep.cpu_ms < 5


def test_a_stage_that_computes_takes_cpu_for_all_of_its_time(synthetic):
    burn = stage_of(profile_of(dataset_of(synthetic, Burn())), "Burn")
    assert burn.cpu_ms >= 20
    assert burn.idle_ms < burn.mean_ms / 2


@pytest.mark.parametrize(("cpu_seconds", "waits"), [(0.001, True), (0.019, False)])
def test_the_slowest_stage_is_found_and_whether_it_waits(cpu_seconds, waits):
    calls = {"Fast": Call(0.005, 0.005, 0, 0, 0, 1), "Slow": Call(0.02, cpu_seconds, 0, 0, 0, 1)}
    stages = [StageTimes.of(Step(name, name, "fixed", id), [call], 0.5) for name, call in calls.items()]
    found = Profile("here", 5, stages, {}, {})
    assert found.slowest is stages[1]
    assert (found.slowest.idle_ms > found.slowest.mean_ms / 2) == waits


def test_a_random_stage_counts_as_it_was_drawn(synthetic):
    dataset = dataset_of(synthetic, SleepSometimes())
    stage = stage_of(profile_of(dataset), "SleepSometimes")
    drawn = [
        sample_generator(dataset.seed, epoch, index).random() < 0.5 for epoch in range(REPEATS) for index in range(5)
    ]
    assert 0 < sum(drawn) < len(drawn) == stage.calls
    assert stage.min_ms < 20
    assert stage.mean_ms * stage.calls >= 20 * sum(drawn)


def test_the_whole_path_is_measured_with_and_without_polygons(synthetic):
    found = profile_of(dataset_of(synthetic, SleepOverWords()))
    with_words, without = found.whole["with polygons"], found.whole["without polygons"]
    assert with_words.min_ms > 20
    assert without.idle_ms < with_words.idle_ms
    assert with_words.calls == without.calls == REPEATS * len(BATCHES)


def test_fresh_memory_is_seen_as_page_faults(synthetic):
    found = profile_of(dataset_of(synthetic, TakeMemory()))
    # Pages may be huge, of 2 MB.
    assert stage_of(found, "TakeMemory").page_faults >= 24
    assert stage_of(found, "Letterbox").page_faults < 24


def test_two_stages_of_a_kind_have_names_of_their_own(synthetic):
    found = profile_of(dataset_of(synthetic, Sleep(0.001), Sleep(0.002)))
    assert stage_of(found, "Sleep").label == "Sleep(seconds=0.001)"
    assert stage_of(found, "Sleep 2").label == "Sleep(seconds=0.002)"


def test_transforms_of_albumentations_are_measured_one_by_one(synthetic):
    albumentations = pytest.importorskip("albumentations")
    chain = [albumentations.CLAHE(p=1), albumentations.GaussNoise(p=0.5), albumentations.HorizontalFlip(p=0.5)]
    found = profile_of(dataset_of(synthetic, *chain))
    names = [stage.name for stage in found.stages if stage.kind == "random"]
    assert names == ["CLAHE", "GaussNoise", "HorizontalFlip"]


def test_processes_collate_items_where_threads_write_slots(synthetic):
    found = profile_of(dataset_of(synthetic), engine="processes")
    assert [stage.name for stage in found.stages if stage.kind == "batch"] == ["item", "collate"]


def test_ready_shards_have_neither_decoding_nor_fixed_stages(synthetic, tmp_path):
    folder, settings = dataset_of(synthetic), ConvertSettings(ready=True)
    convert_split(make_plan(folder, "train", tmp_path, settings), settings, show_progress=False)
    found = profile_of(OCRWebDataset(str(tmp_path / "train-*.tar"), folder.transform))
    assert [stage.name for stage in found.stages] == ["source", "targets", "slot", "batch", "device"]


def test_a_stage_that_fails_is_named_with_its_page(synthetic):
    dataset = dataset_of(synthetic, Fail())
    with rejects(StageError, setting="Fail()", path=paths(synthetic)[0] / dataset.source.names[0]) as caught:
        profile_of(dataset)
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


def composed(data: Path, *overrides: str):
    return lambda more: compose_training([f"dataset_base_path={data}", "transforms.size=64", *overrides, *more])


def test_larger_pages_take_more_and_nothing_is_cached(synthetic, tmp_path):
    compose = composed(synthetic, f"cache.folder={tmp_path}", "datasets.val_dataset.preload_images=true")
    found = profile(compose, ProfileSettings("val", pages=4, repeats=2, sizes=(64, 640)))
    small, large = found.sizes[64], found.sizes[640]
    assert [stage.name for stage in small] == [stage.name for stage in large]
    letterbox = [stage.name for stage in small].index("Letterbox")
    assert large[letterbox].bytes_out > 70 * small[letterbox].bytes_out
    assert sum(stage.cpu_ms for stage in large) > sum(stage.cpu_ms for stage in small)
    assert not list(tmp_path.iterdir())


def test_a_page_that_cannot_be_read_is_left_out_where_that_is_wished(dataset_folder):
    image = sorted((dataset_folder / "images" / "val").iterdir())[0]
    image.write_bytes(b"no image")
    found = profile(composed(dataset_folder, "on_bad_sample=skip"), ProfileSettings("val", pages=6, repeats=1))
    assert found.pages == 5


def run_command(*arguments: str) -> str:
    result = CliRunner(env={"COLUMNS": "160"}).invoke(app, ["profile", *arguments])
    if result.exception:
        raise result.exception
    return result.stdout


def test_the_command_writes_what_the_report_reads(synthetic, tmp_path):
    file = tmp_path / "profile.json"
    model = ["--model", "model=lite", "model.channels=32", "trainer.accelerator=cpu"]
    options = ["--pages", "4", "--repeats", "2", "--sizes", "64,96", "--json", str(file), *model]
    shown = run_command(f"dataset_base_path={synthetic}", "transforms.size=64", *options)
    found = read_result(file)
    assert (found["kind"], found["data"]["split"], found["data"]["pages"]) == ("profile", "train", 4)
    assert found["command"].startswith(f"ocr profile dataset_base_path={synthetic} transforms.size=64")
    names = [stage["name"] for stage in found["stages"]]
    assert names[-5:] == ["forward", "backward", "inference", "boxes", "scores"]
    data = [stage for stage in found["stages"] if stage["kind"] in DATA_KINDS]
    assert math.isclose(sum(stage["share"] for stage in data), 1)
    assert [stage["share"] for stage in found["stages"][-5:]] == [None] * 5
    keys = {"name", "label", "kind", "calls", "mean_ms", "std_ms", "min_ms", "max_ms", "share", "cpu_ms"}
    assert all(keys | {"bytes_out", "page_faults"} <= set(stage) for stage in found["stages"])
    assert list(found["whole"]) == ["with polygons", "without polygons"]
    assert all(whole["mean_ms"] > 0 for whole in found["whole"].values())
    for size in found["sizes"]:
        assert math.isclose(size["total_ms"], sum(size["stages"].values()))
    assert [size["size"] for size in found["sizes"]] == [64, 96]
    assert found["slowest"] == max(data, key=lambda stage: stage["mean_ms"])["name"]
    assert found["sentence"] in " ".join(shown.split())
    for name in names:
        assert name in shown


@pytest.mark.parametrize(
    ("arguments", "setting", "value"),
    [
        (("--split", "tain"), "datasets.tain_dataset", None),
        (("transforms.sise=3",), "transforms.sise", None),
        (("--model", "trainer.precision=64-true"), "trainer.precision", "64-true"),
        (("--sizes", "640,large"), "--sizes", "640,large"),
        (("--sizes", "15"), "--sizes", "15"),
    ],
)
def test_what_cannot_work_is_named(synthetic, arguments, setting, value):
    with rejects(ConfigError, setting=setting, value=value):
        run_command(f"dataset_base_path={synthetic}", "model=lite", "--pages", "1", "--sizes", "", *arguments)


def test_json_is_whole_or_not_there(synthetic, tmp_path):
    place = tmp_path / "file" / "profile.json"
    place.parent.write_text("in the way")
    options = [f"dataset_base_path={synthetic}", "transforms.size=64", "--pages", "1", "--repeats", "1", "--sizes", ""]
    with rejects(OutputError, path=place):
        run_command(*options, "--json", str(place))
    run_command(*options, "--json", str(tmp_path / "ok.json"))
    assert json.loads((tmp_path / "ok.json").read_text())["kind"] == "profile"


def test_wording_of_a_profile(snapshot):
    rows = [
        # Name, label, kind, milliseconds of two calls, share of the CPU time in them, bytes.
        ("source", "FolderSource()", "source", (2.0, 4.0), 0.1, 450_000),
        ("decode", "Decode()", "fixed", (8.0, 12.0), 1.0, 3_600_000),
        ("Letterbox", "Letterbox(640)", "fixed", (1.0, 1.0), 1.0, 1_228_800),
        ("Warp", "RandomFlip(p=0.5) -> RandomRotate(10)", "random", (0.0, 2.0), 1.0, 1_228_800),
        ("targets", "Targets()", "targets", (1.0, 3.0), 1.0, 5_324_800),
        ("forward", "TextDetector()", "model", (120.0, 140.0), 1.0, 0),
    ]

    def times(factor: float, slowest: str, idle: bool) -> list[StageTimes]:
        stages = []
        for name, label, kind, milliseconds, busy, size in rows:
            busy = 0.1 if idle and name == slowest else busy
            calls = [Call(factor * ms / 1e3, factor * busy * ms / 1e3, 2e-4, 3, 0, size) for ms in milliseconds]
            share = None if kind == "model" else sum(milliseconds) / 34
            stages.append(StageTimes.of(Step(name, label, kind, id), calls, share))
        return stages

    shown = Console(record=True, width=110, file=io.StringIO())
    path = StageTimes.of(Step("whole", "", "", id), [Call(0.019, 0.016, 0, 0, 0, 0), Call(0.021, 0.017, 0, 0, 0, 0)])
    sizes = {320: times(0.25, "", False)[:-1], 640: times(1.0, "", False)[:-1]}
    whole = {"with polygons": path, "without polygons": path}
    print_profile(Profile("pages [1]", 1, times(1.0, "", False), whole, sizes), "train", shown)
    waiting = Profile("pages", 1, times(1.0, "decode", True), {}, {})
    shown.print(waiting.sentence, highlight=False, soft_wrap=True)
    snapshot("profile", shown.export_text())

"""What the tools tell a user, word for word: reports, results and errors."""

import json
import re

import pytest
from doctor.doctor_data import BOXES, SIZE, SmallDataset, box, raw_points, text_page
from typer.testing import CliRunner

from ocr.cli import app
from ocr.errors import GlyphFeedError


@pytest.fixture
def say(tmp_path, monkeypatch):
    """The text of commands, typed in the folder of the test, as a prompt, what is printed, and the exit status."""
    monkeypatch.chdir(tmp_path)

    def run(*commands, columns=100):
        runner = CliRunner(env={"COLUMNS": str(columns)})
        shown = []
        for command in commands:
            done = runner.invoke(app, command.split())
            if isinstance(done.exception, GlyphFeedError):
                shown.append(f"$ ocr {command}\nerror: {done.exception}\n")
            else:
                assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
                shown.append(f"$ ocr {command}\n{done.output}[exit {done.exit_code}]\n")
        return same_everywhere("\n".join(shown))

    return run


def same_everywhere(text: str) -> str:
    """Without times, sizes on disk, and the memory of the machine."""
    text = re.sub(r" ━+ (\d+/\d+) [\d:]+", r" \1", text)
    text = re.sub(r"\d+\.\d s\b", "0.0 s", text)
    return re.sub(r"\d+\.\d ([kMG]B)", r"1.0 \1", text)


def write_every_mistake(data: SmallDataset) -> None:
    """One of each mistake that is usual."""
    words = {
        "good": {"points": box(20, 30), "transcription": "total"},
        "two": {"points": [[0, 0], [5, 5]]},
        "flat": {"points": [[20, 30], [80, 30], [50, 30]]},
        "bow": {"points": [[20, 30], [80, 30], [20, 50], [80, 50]]},
        "out": {"points": box(150, 30)},
        "number": {"points": box(20, 80), "transcription": 12},
    }
    data.add("words.jpg", words=words)
    data.add("gone.jpg").unlink()
    data.add("empty.jpg").write_bytes(b"")
    data.add("html.jpg").write_bytes(b"<html>")
    short = data.add("short.jpg")
    short.write_bytes(short.read_bytes()[:-100])
    raw = {str(at): {"points": raw_points(each, 6, SIZE)} for at, each in enumerate(BOXES)}
    data.add("turned.jpg", words=raw, image=text_page(), orientation=6, img_w=SIZE[1], img_h=SIZE[0])
    data.add("sized.jpg", img_w=90, img_h=90)
    data.add("blank.jpg", words={}, split="val")
    twin = data.add("a.jpg", split="val").read_bytes()
    data.add("b.jpg", split="val").write_bytes(twin)
    data.image_path("notes.md", "val").write_text("stray")
    data.write()


def test_the_wording_of_the_doctor(say, tmp_path, snapshot):
    write_every_mistake(SmallDataset(tmp_path / "data"))
    (tmp_path / "images").mkdir()
    sound = SmallDataset(tmp_path / "sound")
    sound.add("a.jpg")
    sound.write()
    told = say(
        "doctor data --fix fixed",
        "doctor sound",
        "doctor nowhere",
        "doctor data --split vall",
        "doctor data --executor rya",
        "doctor data --fix data",
        "doctor sound --fix fixed",
        "doctor data --model nowhere.ckpt",
        "doctor data --tasks cvat",
        "doctor data --model glyphfeed --tasks cvat",
        "doctor data --model glyphfeed --tasks paddle --out x",
        "doctor data --out x",
        "doctor data --html nowhere/report.html",
        "doctor data --json nowhere/report.json",
    )
    snapshot("doctor", told)
    assert not (tmp_path / "nowhere").exists()


def test_the_wording_of_conversions(say, tmp_path, snapshot):
    data = SmallDataset(tmp_path / "data")
    for name in ("a.jpg", "b.jpg", "c.jpg"):
        data.add(name, split="val")
    data.write()
    (tmp_path / "labels").mkdir()
    (tmp_path / "labels" / "gt_a.txt").write_text("0,0,9,0,9,5,0,5,Total\n115,322,###\n")
    (tmp_path / "file").touch()
    told = say(
        "convert data shards --samples-per-shard 2",
        "convert data shards --samples-per-shard 2",
        "convert data shards --samples-per-shard 2 --verify",
        "convert data shards",
        "convert data other --verify",
        "convert data file",
        "convert data s3://bucket/shards",
        "convert data other --samples-per-shard 0",
        "convert data other --bytes-per-shard many",
        "convert data other --split vall",
    )
    (tmp_path / "shards" / "val-000001.tar").unlink()
    data.image_path("a.jpg", "val").write_bytes(b"no image")
    told += "\n" + say(
        "convert data shards --verify",
        "convert data bad --samples-per-shard 2",
        "convert data bad --samples-per-shard 2 --on-bad-sample skip",
        "convert-annotations labels out.json",
        "convert-annotations labels out.json",
        "convert-annotations out.json out.json --overwrite",
        "convert-annotations labels out.txt",
        "convert-annotations gone out.json",
        "convert-annotations labels tasks.json --to label_studio",
        "convert-annotations labels out.json --to page_xml",
        "convert-annotations labels labelme --to labelme --image-path data/images/val",
    )
    snapshot("convert", told)


NATIVE = '{"images": {"a.jpg": {"words": {"1": {"points": %s}}}}}'


@pytest.mark.parametrize(
    "annotation",
    ["{}", '{"images": [], "annotations": [}', '{"pages": 1}', '{"shapes": []}', NATIVE % "3", "", "1,2,3", "1 2 3 4 5",
     json.dumps({"images": [{"id": 1, "file_name": "a.jpg"}, {"id": 2, "file_name": "x/a.jpg"}], "annotations": []})],
)  # fmt: skip
@pytest.mark.parametrize("command", ["convert data", "doctor data", "convert-annotations data/jsons/val.json out.json"])
def test_an_error_recommends_no_option_that_its_command_lacks(say, tmp_path, command, annotation):
    data = SmallDataset(tmp_path / "data")
    data.add("a.jpg", split="val")
    data.write()
    data.json_path("val").write_text(annotation)
    # What is in backticks is another command.
    named = {option for told in say(command).split("`")[::2] for option in re.findall(r"--[a-z][a-z-]*", told)}
    assert named <= set(re.findall(r"--[a-z][a-z-]*", say(f"{command.split()[0]} --help", columns=300)))


def test_the_wording_of_the_cache(say, tmp_path, dataset_folder, snapshot):
    (tmp_path / "cache" / "pages").mkdir(parents=True)
    (tmp_path / "cache" / "pages" / "0123.rows").write_bytes(bytes(1900))
    built = f"cache build dataset_base_path={dataset_folder} transforms.size=64 --folder cache"
    told = say("cache ls --folder empty", "cache clear --folder empty", built, built, f"{built} data.cache=off")
    told += "\n" + say("cache ls --folder cache", columns=400)
    told += "\n" + say(
        "cache clear --folder cache",
        "cache clear --folder cache --dry-run",
        "cache clear --folder cache --max-bytes much",
        "cache clear zzzz --folder cache",
        "cache clear --folder cache --yes",
    )
    told = re.sub(r"\d+ pages/s", "1 pages/s", re.sub(r"\d{4}-\d\d-\d\d", "2025-01-31", told))
    told = re.sub(r"\b[\d.]+ ([kMG]B)", r"1 \1", re.sub(r"\b[0-9a-f]{6}(?=[ ,])", "abc123", told))
    # The columns are as wide as the path of the dataset.
    snapshot("cache_ls", re.sub("──+", "──", re.sub("  +", "  ", told)))


def test_the_wording_of_synthetic_pages(say, tmp_path, snapshot):
    (tmp_path / "file").touch()
    (tmp_path / "blank").mkdir()
    made = "--train 1 --val 1 --megapixels 0.1 0.2 --workers 0"
    told = say(
        f"synth pages {made}",
        f"synth pages {made}",
        f"synth file {made}",
        "synth other --train -1",
        "synth other --train 0 --val 0",
        "synth other --megapixels 2 1",
        "synth other --kind forms",
        "synth other --units word",
        "synth other --seed -1",
        "synth other --workers -1",
    )
    snapshot("synth", told)

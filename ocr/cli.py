"""The `ocr` command. Every library that takes time to load is imported in the command that needs it."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from ocr import __version__
from ocr.advisor.commands.advise import advise
from ocr.advisor.commands.bench import EXAMPLES as BENCH_EXAMPLES
from ocr.advisor.commands.bench import bench
from ocr.advisor.commands.profile import EXAMPLES as PROFILE_EXAMPLES
from ocr.advisor.commands.profile import profile
from ocr.advisor.commands.report import report
from ocr.tools.cache.command import app as cache_app
from ocr.tools.convert.command import convert
from ocr.tools.engine import ENGINE_HELP

app = typer.Typer(
    name="ocr",
    help="GlyphFeed: the fastest way to train a text detector.",
    epilog="Start with: ocr synth data/demo, then ocr doctor data/demo, then ocr preview data/demo preview.png",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(cache_app, name="cache")


def _examples(*commands: str) -> str:
    return "Examples: " + "   |   ".join(commands)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"glyphfeed {__version__}")
        raise typer.Exit()


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None: ...


@app.command(epilog=_examples("ocr synth data/demo", "ocr synth pages --train 1000 --val 100 --seed 7"))
def synth(
    out: Annotated[Path, typer.Argument(help="Folder for images/<split>/ and jsons/<split>.json.")],
    train: Annotated[int, typer.Option(help="Pages to train on.")] = 64,
    val: Annotated[int, typer.Option(help="Pages to validate on.")] = 24,
    seed: Annotated[int, typer.Option(help="Same seed, same bytes.")] = 0,
    megapixels: Annotated[tuple[float, float], typer.Option(help="Smallest and largest page.")] = (0.5, 12.0),
    workers: Annotated[int | None, typer.Option(help="Processes; default: one a core.")] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the pages that are there.")] = False,
) -> None:
    """Make synthetic receipts with exact polygons."""
    from ocr.tools.synth import synthesize

    made = synthesize(out, train, val, seed, megapixels=megapixels, workers=workers, overwrite=overwrite)
    typer.echo(
        f"{made.pages} pages with {made.words} words ({made.ignored} illegible, {made.curved} curved; {made.turned} "
        f"pages EXIF-rotated) in {made.seconds:.1f} s: {out}"
    )


@app.command(epilog=_examples("ocr doctor data/demo", "ocr doctor DIR --html report.html --fix repaired"))
def doctor(
    data: Annotated[Path, typer.Argument(help="Dataset: images/<split>/ and jsons/<split>.json.")],
    annotation_path: Annotated[
        Path | None, typer.Option(help="Annotation of a single split; DATA is then its folder of images.")
    ] = None,
    split: Annotated[list[str] | None, typer.Option(help="Only this split; may be repeated.")] = None,
    annotation_format: Annotated[str, typer.Option(help="Format of the annotation.")] = "auto",
    annotation_frame: Annotated[str, typer.Option(help="Frame of polygons on EXIF pages: auto|upright|raw.")] = "auto",
    size: Annotated[int, typer.Option(help="Side of the letterboxed page, for tiny text.")] = 640,
    min_text_size: Annotated[float, typer.Option(help="Shortest side of text that is learnt, in pixels.")] = 2.0,
    max_pixels: Annotated[int | None, typer.Option(help="Largest page; more is refused as a bomb.")] = None,
    deep: Annotated[bool, typer.Option("--deep", help="Decode every page instead of reading headers.")] = False,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Write the findings here (- for the screen).")
    ] = None,
    html: Annotated[Path | None, typer.Option(help="Write a page with the offenders drawn.")] = None,
    fix: Annotated[
        Path | None, typer.Option(help="Write a repaired copy of the annotations below this folder.")
    ] = None,
    engine: Annotated[str, typer.Option(help=ENGINE_HELP)] = "local",
    workers: Annotated[int | None, typer.Option(help="Threads, or CPUs of Ray; default: all.")] = None,
) -> None:
    """List what is wrong with a dataset; exit status 1 where something is.

    Errors break training or teach something wrong, warnings lose or distort single words or pages: both make the exit
    status 1. Notes (tiny text, ambiguous frames, pages without words, stray files) are handled by training.
    """
    from rich.console import Console

    from ocr.atomic import replacing
    from ocr.tools.doctor import examine, print_fix, print_report, write_fixed, write_html

    to_screen = str(json_file) == "-"
    report = examine(
        data,
        splits=split or None,
        annotation_path=annotation_path,
        annotation_format=annotation_format,
        annotation_frame=annotation_frame,
        size=size,
        min_text_size=min_text_size,
        **({} if max_pixels is None else {"max_pixels": max_pixels}),
        deep=deep,
        workers=workers,
        show_progress=not to_screen,
        engine=engine,
    )
    console = Console(stderr=to_screen)
    print_report(report, console)
    if to_screen:
        typer.echo(report.to_json())
    elif json_file:
        with replacing(json_file) as stream:
            stream.write(report.to_json().encode())
    if html:
        write_html(report, html)
        console.print(f"drawn: {html}")
    if fix:
        print_fix(write_fixed(report, fix), console)
    raise typer.Exit(report.exit_status)


@app.command(
    "convert-annotations",
    epilog=_examples("ocr convert-annotations Label.txt jsons/train.json", "ocr convert-annotations gt/ val.json"),
)
def convert_annotations(
    source: Annotated[Path, typer.Argument(help="Annotation file, or folder of one file an image.")],
    target: Annotated[Path, typer.Argument(help="Native JSON to write.")],
    annotation_format: Annotated[
        str, typer.Option("--format", help="auto, native, icdar2015, icdar2013, total_text, ctw1500, coco or paddle.")
    ] = "auto",
    image_path: Annotated[Path | None, typer.Option(help="Folder of the images, to find their names.")] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the target if it is there.")] = False,
) -> None:
    """Write the native JSON from any known annotation format."""
    from ocr.tools.convert_annotations import convert_annotations as convert

    done = convert(source, target, annotation_format, image_path, overwrite)
    typer.echo(f"{done.format}: {done.pages} pages, {done.words} words ({done.ignored} ignored): {target}")
    if done.missing:
        typer.secho(f"{done.missing} of the pages have no image in {image_path}", fg="yellow", err=True)


app.command(epilog=_examples(*PROFILE_EXAMPLES))(profile)
app.command(epilog=_examples(*BENCH_EXAMPLES))(bench)
app.command(epilog=_examples("ocr advise dataset_base_path=DIR", "ocr advise --step-ms 60 --apply --html advice.html"))(
    advise
)
app.command(epilog=_examples("ocr report advice.json --out report.html", "ocr report bench.json profile.json"))(report)
app.command(epilog=_examples("ocr convert DIR shards", "ocr convert DIR shards --split val --ready --verify"))(convert)


@app.command(epilog=_examples("ocr preview data/demo preview.png", "ocr preview DIR train.png --split train --pages 4"))
def preview(
    data: Annotated[Path, typer.Argument(help="Dataset: images/<split>/ and jsons/<split>.json.")],
    out: Annotated[Path, typer.Argument(help="PNG to write.")],
    split: Annotated[str, typer.Option(help="Split to show; train is augmented.")] = "val",
    pages: Annotated[int, typer.Option(help="How many pages.")] = 3,
    size: Annotated[int, typer.Option(help="Side of the letterboxed page.")] = 640,
    seed: Annotated[int, typer.Option(help="Of the augmentation.")] = 0,
) -> None:
    """Draw pages as the model gets them: polygons, probability map, threshold map, what counts in the loss."""
    from ocr.tools.preview import draw_preview

    for reason in draw_preview(data, out, split=split, pages=pages, size=size, seed=seed):
        typer.secho(f"left out: {reason}", fg="yellow", err=True)
    typer.echo(f"drawn: {out}")


_OVERRIDES = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": ["-h", "--help"]}


def _run_job(job: str, overrides: list[str]) -> None:
    """Become the runner of a job, so that `ocr train` is `python runners/train.py` in every respect."""
    from ocr.errors import ConfigError

    runner = Path(__file__).resolve().parent.parent / "runners" / f"{job}.py"
    if not runner.is_file():
        raise ConfigError(f"{runner} is not there: `ocr {job}` needs a checkout of the repository, installed editable")
    os.execv(sys.executable, [sys.executable, str(runner), *overrides])


@app.command(context_settings=_OVERRIDES, epilog=_examples("ocr train dataset_base_path=DIR model=lite"))
def train(context: typer.Context) -> None:
    """Train a detector: KEY=VALUE as in configs/train.yaml."""
    _run_job("train", context.args)


@app.command(context_settings=_OVERRIDES, epilog=_examples("ocr test checkpoint_path=best.ckpt dataset_base_path=DIR"))
def test(context: typer.Context) -> None:
    """Score a checkpoint: KEY=VALUE as in configs/test.yaml."""
    _run_job("test", context.args)


@app.command(context_settings=_OVERRIDES, epilog=_examples("ocr predict checkpoint_path=best.ckpt images=FOLDER"))
def predict(context: typer.Context) -> None:
    """Find the text of a folder of images: KEY=VALUE as in configs/predict.yaml."""
    _run_job("predict", context.args)


@app.command(context_settings=_OVERRIDES, epilog=_examples("ocr sweep checkpoint_path=best.ckpt dataset_base_path=DIR"))
def sweep(context: typer.Context) -> None:
    """Find the best settings of the boxes of a checkpoint: KEY=VALUE as in configs/sweep.yaml."""
    _run_job("sweep", context.args)


def main() -> None:
    """Run the command; a known error is one line, not a traceback."""
    from ocr.errors import GlyphFeedError

    try:
        app()
    except (GlyphFeedError, OSError) as error:
        typer.secho(f"error: {error}", fg="red", err=True)
        sys.exit(2)
    except KeyboardInterrupt:
        typer.secho("interrupted", fg="yellow", err=True)
        sys.exit(130)


if __name__ == "__main__":
    main()

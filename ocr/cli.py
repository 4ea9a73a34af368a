"""The `glyphfeed` command. Every library that takes time to load is imported in the command that needs it."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from inspect import cleandoc
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperCommand

from ocr import __version__
from ocr.deploy.service.command import EXAMPLES as SERVE_EXAMPLES
from ocr.deploy.service.command import Polygons, serve
from ocr.exit_status import one_line_errors
from ocr.report.command import EXAMPLES as REPORT_EXAMPLES
from ocr.report.command import report
from ocr.tools.annotations_command import convert_labels
from ocr.tools.cache import app as cache_app
from ocr.tools.convert.command import shards
from ocr.tools.doctor_command import EXAMPLES as DOCTOR_EXAMPLES
from ocr.tools.doctor_command import doctor

DATA, TRAINING, USE = "Pages and labels", "Training: settings are KEY=VALUE", "Using a detector"
HELP_OPTIONS = ["-h", "--help"]
MODEL_HELP = "A checkpoint, an exported folder, or glyphfeed: the bundled detector."
Command = Callable[[typer.Context], None]

app = typer.Typer(
    name="glyphfeed",
    help="GlyphFeed: train text detectors on documents, and use them.",
    epilog="First steps: glyphfeed synth data/demo, glyphfeed doctor data/demo, glyphfeed train experiment=finetune",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": HELP_OPTIONS},
)


def _examples(*commands: str) -> str:
    # Brackets are markup to rich.
    return "\n\n".join(["Examples:", *(command.replace("[", "\\[") for command in commands)])


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


@app.command(rich_help_panel=DATA, epilog=_examples("glyphfeed init receipts"))
def init(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder of the project; made if it does not exist.")],
) -> None:
    """Write a small project: your own settings, and how to run them."""
    from ocr.tools.init import write_project

    for file in write_project(folder):
        typer.echo(f"written: {file}")
    typer.echo(f"next: {folder / 'README.md'} says how to train")


@app.command(
    rich_help_panel=DATA,
    epilog=_examples("glyphfeed synth data/demo", "glyphfeed synth pages --train 1000 --kind form --units words"),
)
def synth(
    out: Annotated[Path, typer.Argument(metavar="OUT", help="Folder for images/<split>/ and jsons/<split>.json.")],
    train: Annotated[int, typer.Option(help="Pages to train on.")] = 64,
    val: Annotated[int, typer.Option(help="Pages to validate on.")] = 24,
    seed: Annotated[int, typer.Option(help="Same seed, same bytes.")] = 0,
    megapixels: Annotated[tuple[float, float], typer.Option(help="Smallest and largest page.")] = (0.5, 12.0),
    kind: Annotated[str, typer.Option(help="receipt, form, letter, invoice; several: a,b; or mixed.")] = "receipt",
    units: Annotated[
        str,
        typer.Option(help="words; lines; both: each label says which; usual: lines on receipts, words elsewhere."),
    ] = "lines",
    workers: Annotated[int | None, typer.Option(help="Processes; default: one per core.")] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace existing pages.")] = False,
) -> None:
    """Make synthetic pages with exact polygons: receipts, forms, letters, invoices."""
    from ocr.tools.synth import synthesize
    from ocr.tools.synth.kinds import check_units

    made = synthesize(
        out,
        train,
        val,
        seed,
        megapixels=megapixels,
        kind=kind,
        units=check_units(units),
        workers=workers,
        overwrite=overwrite,
    )
    named = units if units in ("words", "lines") else "words and lines"
    typer.echo(
        f"{made.pages} pages with {made.words} {named} ({made.ignored} illegible, {made.curved} curved; {made.turned} "
        f"pages EXIF-rotated) in {made.seconds:.1f} s: {out}"
    )


app.command(rich_help_panel=DATA, epilog=_examples(*DOCTOR_EXAMPLES))(doctor)


app.command(
    "annotations",
    rich_help_panel=DATA,
    epilog=_examples(
        "glyphfeed annotations Label.txt jsons/train.json",
        "glyphfeed annotations gt/ val.json",
        "glyphfeed annotations train.json tasks.json --to label_studio --image-path images/train",
    ),
)(convert_labels)


app.command(
    rich_help_panel=DATA,
    epilog=_examples("glyphfeed shards DATA", "glyphfeed shards DATA OUT --split val --ready --verify"),
)(shards)


@app.command(
    rich_help_panel=DATA,
    epilog=_examples(
        "glyphfeed preview data/demo",
        "glyphfeed preview DATA --split train --limit 4 --set experiment=receipts",
        "glyphfeed preview DATA --set checkpoint_path=best.ckpt --out seen.png",
    ),
)
def preview(
    data: Annotated[Path, typer.Argument(metavar="DATA", help="Dataset: images/<split>/ and jsons/<split>.json.")],
    out: Annotated[Path, typer.Option(help="PNG to write.")] = Path("preview.png"),
    split: Annotated[str, typer.Option(help="train (augmented), val or test.")] = "val",
    limit: Annotated[int, typer.Option(metavar="N", help="How many pages, spread over the split.")] = 3,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="A setting of glyphfeed train; repeatable.")
    ] = None,
) -> None:
    """Draw pages as the model sees them: polygons, target maps, what the loss counts."""
    from ocr.tools.preview import draw_preview

    for reason in draw_preview(data, out, split=split, limit=limit, settings=settings or ()):
        typer.secho(f"left out: {reason}", fg="yellow", err=True)
    typer.echo(f"drawn: {out}")


app.add_typer(cache_app, name="cache", rich_help_panel=DATA)


def _become(job: str, overrides: list[str], package: str = "ocr.jobs") -> NoReturn:
    """Replace this process with the job's, which distributed training starts again as `python -m ocr.jobs.<job>`."""
    sys.stdout.flush()
    os.execv(sys.executable, [sys.executable, "-m", f"{package}.{job}", *overrides])


class JobCommand(TyperCommand):
    """A command that passes its KEY=VALUE on to a job; its help ends with the commonest."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        from rich.console import Console
        from rich.table import Table

        from ocr.jobs.common_settings import common_settings

        super().format_help(ctx, formatter)
        table = Table(title="The commonest settings", title_justify="left", box=None, padding=(0, 1))
        table.add_column("KEY=DEFAULT", no_wrap=True)
        table.add_column("")
        for key, value, about in common_settings():
            table.add_row(*(cell.replace("[", "\\[") for cell in (f"{key}={value}", about)))
        Console().print(table)


def _job(*examples: str) -> Callable[[Command], Command]:
    settings: dict[str, Any] = {
        "context_settings": {
            "allow_extra_args": True,
            "ignore_unknown_options": True,
            "help_option_names": HELP_OPTIONS,
        },
        "options_metavar": "KEY=VALUE... [--cfg job] [--config-dir DIR]",
    }
    return app.command(cls=JobCommand, rich_help_panel=TRAINING, epilog=_examples(*examples), **settings)


@_job(
    "glyphfeed train dataset_base_path=DATA model=lite trainer.max_epochs=20",
    "glyphfeed train experiment=finetune dataset_base_path=DATA",
    "glyphfeed train resume=outputs/DAY/TIME/checkpoints/last.ckpt",
)
def train(context: typer.Context) -> None:
    """Train a detector.

    Settings are KEY=VALUE; `--cfg job` shows all of them. Configs in ./configs, or in `--config-dir DIR`, come before
    the package's.
    """
    _become("train", context.args)


@_job(
    "glyphfeed test checkpoint_path=best.ckpt dataset_base_path=DATA",
    "glyphfeed test tune=true checkpoint_path=best.ckpt dataset_base_path=DATA",
)
def test(context: typer.Context) -> None:
    """Score a checkpoint; with tune=true, find better boxes.

    Takes the KEY=VALUE of `glyphfeed train`. `tune=true` scores combinations of `grid` on the validation pages. If one
    is better, and CLEval not lower, it is written as best.tuned.ckpt; the checkpoint stays as it is.
    """
    _become("test", context.args)


@_job(
    "glyphfeed inspect checkpoint_path=best.ckpt dataset_base_path=DATA out=inspection",
    "glyphfeed inspect checkpoint_path=before.ckpt compare=after.ckpt dataset_base_path=DATA",
)
def inspect(context: typer.Context) -> None:
    """Find the errors of a checkpoint, their causes, and what would help.

    Takes the KEY=VALUE of `glyphfeed train`. Writes tables, and atlas.html with all pages and errors drawn.
    `compare=AFTER` shows what got better and worse from one checkpoint to another.
    """
    _become("inspect", context.args)


@_job(
    "glyphfeed advise dataset_base_path=DATA",
    "glyphfeed advise dataset_base_path=DATA step_ms=60 apply=true html=advice.html",
)
def advise(context: typer.Context) -> None:
    """Measure what would make training faster.

    Runs a configuration and changes of it for a few seconds each. Takes the KEY=VALUE of `glyphfeed train`, and
    step_ms=N (else the model is measured), split=val, stages=true, verify=true, apply=true (for data=tuned),
    compile=true, alter=true, all_rows=true, html=FILE, json=FILE.
    """
    _become("job", context.args, package="ocr.advisor")


app.command(rich_help_panel=TRAINING, epilog=_examples(*REPORT_EXAMPLES))(report)


@app.command(
    rich_help_panel=USE,
    epilog=_examples(
        "glyphfeed predict glyphfeed scans",
        "glyphfeed predict best.ckpt a.jpg b.pdf 'more/*.png' --format json --format label_studio --no-draw",
        "find . -name '*.jpg' | glyphfeed predict exported - --skip-bad",
    ),
)
def predict(
    model: Annotated[str, typer.Argument(metavar="MODEL", help=MODEL_HELP)],
    pages: Annotated[
        list[str],
        typer.Argument(metavar="PAGES", help="Folders, images, PDFs, quoted patterns; -: names on standard input."),
    ],
    out: Annotated[Path, typer.Option(help="Folder to write into.")] = Path("predictions"),
    formats: Annotated[
        list[str] | None,
        typer.Option(
            "--format",
            help="json, csv, coco, yolo, alto, label_studio, cvat, labelme, via, mmocr, paddle, pascal_voc. "
            "Repeatable; default: json and csv.",
        ),
    ] = None,
    draw: Annotated[bool, typer.Option("--draw/--no-draw", help="Draw every page into OUT/drawn.")] = True,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Start again; else only new pages are done.")] = False,
    skip_bad: Annotated[bool, typer.Option("--skip-bad", help="Leave out pages that cannot be read.")] = False,
    thresh: Annotated[float | None, typer.Option(help="A pixel is text above it; default: of MODEL.")] = None,
    box_thresh: Annotated[float | None, typer.Option(help="A box is kept above it; default: of MODEL.")] = None,
    unclip_ratio: Annotated[str | None, typer.Option(help="How far boxes grow: exact, or a number.")] = None,
    max_candidates: Annotated[int | None, typer.Option(help="Most boxes per page.")] = None,
    tile: Annotated[str, typer.Option(help="Large pages in windows: auto, off, or pixels.")] = "auto",
    polygons: Annotated[
        Polygons | None, typer.Option(help="quad or curved; default: quad if MODEL was trained on quadrilaterals.")
    ] = None,
    max_pixels: Annotated[int, typer.Option(help="Larger pages are refused.")] = 178_956_970,
    batch_size: Annotated[int, typer.Option(min=1, help="Pages per call of the model.")] = 8,
    readers: Annotated[int, typer.Option(min=1, help="Threads that decode ahead.")] = 2,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, or a name that the runtime knows.")] = "auto",
    threads: Annotated[int | None, typer.Option(min=1, help="Cores for the model; default: all.")] = None,
) -> None:
    """Find the text on images and PDFs.

    Writes JSON, CSV, files for labelling tools, and drawn pages. Pages that OUT has already are not done again: after
    an interruption the same command resumes.
    """
    from rich.console import Console

    from ocr.jobs.predict import PredictSettings
    from ocr.jobs.predict import predict as run

    ratio = _number(unclip_ratio)
    boxes = {"thresh": thresh, "box_thresh": box_thresh, "unclip_ratio": ratio, "max_candidates": max_candidates}
    settings = PredictSettings(
        model,
        pages,
        out,
        formats or ("json", "csv"),
        draw,
        overwrite,
        "skip" if skip_bad else "raise",
        {name: value for name, value in boxes.items() if value is not None},
        {
            "device": device,
            "threads": threads,
            "max_pixels": max_pixels,
            "tile": None if tile == "off" else _number(tile),
            "polygons": polygons,
        },
        batch_size,
        readers,
    )
    with one_line_errors("interrupted: the same command resumes here"):
        run(settings, Console())


def _number(text: str | None) -> str | float | int | None:
    for kind in (int, float):
        try:
            return None if text is None else kind(text)
        except ValueError:
            pass
    return text


@app.command(
    rich_help_panel=USE,
    epilog=_examples(
        "glyphfeed export best.ckpt --to onnx --data DATA",
        "glyphfeed export best.ckpt --to openvino --precision int8 --data DATA --out small",
    ),
)
def export(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="A checkpoint, or glyphfeed: the bundled detector.")],
    to: Annotated[str, typer.Option("--to", help="onnx, openvino, torchscript or tensorrt.")] = "onnx",
    precision: Annotated[str, typer.Option(help="fp32, fp16, bf16 or int8.")] = "fp32",
    out: Annotated[Path, typer.Option(help="Folder for the model; an earlier export in it is replaced.")] = Path(
        "exported"
    ),
    data: Annotated[
        Path | None,
        typer.Option(help="Dataset: its val pages check the model, its train pages calibrate int8."),
    ] = None,
    pages: Annotated[Path | None, typer.Option(help="Instead: a folder of pages to check it on.")] = None,
    labels: Annotated[Path | None, typer.Option(help="Their annotation, for the H-mean.")] = None,
    calibration: Annotated[Path | None, typer.Option(help="A folder of pages for the ranges of int8.")] = None,
    limit: Annotated[int, typer.Option(metavar="N", help="Pages to check it on, and to calibrate it.")] = 32,
    threads: Annotated[int | None, typer.Option(min=1, help="Cores while both are timed; default: all.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Write a model that fails its check.")] = False,
) -> None:
    """Write a checkpoint for another runtime, checked on pages.

    The pages run through both; a model that finds other boxes goes to OUT-PRECISION-failed.
    """
    from rich.console import Console

    from ocr.jobs.export import ExportSettings
    from ocr.jobs.export import export as run

    settings = ExportSettings(model, to, precision, out, data, pages, labels, calibration, limit, threads, force)
    with one_line_errors("interrupted: nothing was written"):
        run(settings, Console())


app.command(rich_help_panel=USE, epilog=_examples(*SERVE_EXAMPLES))(serve)

for registered in (*app.registered_commands, *cache_app.registered_commands):
    # Typer keeps the line breaks of a docstring within its paragraphs.
    paragraphs = cleandoc(getattr(registered.callback, "__doc__", None) or "").split("\n\n")
    registered.help = "\n\n".join(paragraph.replace("\n", " ") for paragraph in paragraphs)


def main() -> None:
    """Run the command line."""
    with one_line_errors():
        app(prog_name="glyphfeed")


if __name__ == "__main__":
    main()

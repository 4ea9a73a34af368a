"""The `ocr` command. Every library that takes time to load is imported in the command that needs it."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from ocr import __version__
from ocr.deploy.service.command import EXAMPLES as SERVE_EXAMPLES
from ocr.deploy.service.command import serve
from ocr.exit_status import one_line_errors
from ocr.report.command import EXAMPLES as REPORT_EXAMPLES
from ocr.report.command import report
from ocr.tools.annotations_command import convert_annotations
from ocr.tools.cache import app as cache_app
from ocr.tools.convert.command import convert
from ocr.tools.doctor_command import EXAMPLES as DOCTOR_EXAMPLES
from ocr.tools.doctor_command import doctor

PROJECT, TRAINING, SPEED, STORAGE = "Your data", "Training", "What takes how long", "Preparing ahead"
HELP_OPTIONS = ["-h", "--help"]
Command = Callable[[typer.Context], None]

app = typer.Typer(
    name="ocr",
    help="GlyphFeed: train text detectors without waiting for data.",
    epilog="First steps: ocr synth data/demo, then ocr doctor data/demo, then ocr train experiment=finetune. "
    "Your own settings: ocr init DIR",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": HELP_OPTIONS},
)


def _examples(*commands: str) -> str:
    return "\n\n".join(["Examples:", *commands])


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


@app.command(rich_help_panel=PROJECT, epilog=_examples("ocr init receipts"))
def init(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder of the project; made if it does not exist.")],
) -> None:
    """Write a small project: your own configs with comments, and how to run them. Replaces no file."""
    from ocr.tools.init import write_project

    for file in write_project(folder):
        typer.echo(f"written: {file}")
    typer.echo(f"next: {folder / 'README.md'} says how to train")


@app.command(
    rich_help_panel=PROJECT,
    epilog=_examples("ocr synth data/demo", "ocr synth pages --train 1000 --kind form --units words"),
)
def synth(
    out: Annotated[Path, typer.Argument(help="Folder for images/<split>/ and jsons/<split>.json.")],
    train: Annotated[int, typer.Option(help="Pages to train on.")] = 64,
    val: Annotated[int, typer.Option(help="Pages to validate on.")] = 24,
    seed: Annotated[int, typer.Option(help="Same seed, same bytes.")] = 0,
    megapixels: Annotated[tuple[float, float], typer.Option(help="Smallest and largest page.")] = (0.5, 12.0),
    kind: Annotated[str, typer.Option(help="receipt, form, letter, invoice; several: a,b; or mixed.")] = "receipt",
    units: Annotated[
        str,
        typer.Option(help="words; lines; usual: lines on receipts, words elsewhere."),
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
    named = "words and lines" if units == "usual" else units
    typer.echo(
        f"{made.pages} pages with {made.words} {named} ({made.ignored} illegible, {made.curved} curved; {made.turned} "
        f"pages EXIF-rotated) in {made.seconds:.1f} s: {out}"
    )


app.command(rich_help_panel=PROJECT, epilog=_examples(*DOCTOR_EXAMPLES))(doctor)


app.command(
    "convert-annotations",
    rich_help_panel=PROJECT,
    epilog=_examples(
        "ocr convert-annotations Label.txt jsons/train.json",
        "ocr convert-annotations gt/ val.json",
        "ocr convert-annotations train.json tasks.json --to label_studio --image-path images/train",
    ),
)(convert_annotations)


@app.command(
    rich_help_panel=PROJECT,
    epilog=_examples("ocr preview data/demo preview.png", "ocr preview DIR train.png --split train --pages 4"),
)
def preview(
    data: Annotated[Path, typer.Argument(help="Dataset: images/<split>/ and jsons/<split>.json.")],
    out: Annotated[Path, typer.Argument(help="PNG to write.")],
    split: Annotated[str, typer.Option(help="Split to show; train is augmented.")] = "val",
    pages: Annotated[int, typer.Option(help="How many pages.")] = 3,
    size: Annotated[int, typer.Option(help="Side of the letterboxed page.")] = 640,
    seed: Annotated[int, typer.Option(help="Seed of the augmentation.")] = 0,
) -> None:
    """Draw pages as the model sees them: polygons, probability map, threshold map, what the loss counts."""
    from ocr.tools.preview import draw_preview

    for reason in draw_preview(data, out, split=split, pages=pages, size=size, seed=seed):
        typer.secho(f"left out: {reason}", fg="yellow", err=True)
    typer.echo(f"drawn: {out}")


_OVERRIDES = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": HELP_OPTIONS}


def _become(job: str, overrides: list[str], package: str = "ocr.jobs") -> NoReturn:
    """Replace this process with the job's, which distributed training starts again as `python -m ocr.jobs.<job>`."""
    sys.stdout.flush()
    os.execv(sys.executable, [sys.executable, "-m", f"{package}.{job}", *overrides])


def _job(
    *examples: str, name: str | None = None, options: str = "", panel: str = TRAINING
) -> Callable[[Command], Command]:
    """A command that passes its KEY=VALUE on to a job."""
    metavar = f"KEY=VALUE... {options}".rstrip()
    settings: dict[str, Any] = {"context_settings": _OVERRIDES, "options_metavar": metavar}
    return app.command(name, rich_help_panel=panel, epilog=_examples(*examples), **settings)


@_job(
    "ocr train dataset_base_path=DIR model=lite trainer.max_epochs=20",
    "ocr train data=webdataset dataset_base_path=DIR",
    "ocr train resume=outputs/DAY/TIME/checkpoints/last.ckpt",
    "ocr train --cfg job",
)
def train(context: typer.Context) -> None:
    """Train a detector.

    Takes settings as KEY=VALUE; `--cfg job` shows all of them. Configs in ./configs, or in `--config-dir DIR`, come
    before those of the package.
    """
    _become("train", context.args)


@_job("ocr test checkpoint_path=outputs/DAY/TIME/checkpoints/best.ckpt dataset_base_path=DIR")
def test(context: typer.Context) -> None:
    """Score a checkpoint. Takes the KEY=VALUE of `ocr train`."""
    _become("test", context.args)


@_job(
    "ocr predict checkpoint_path=best.ckpt images=FOLDER out=predictions",
    "ocr predict images=FOLDER formats=[json,label_studio] draw=false",
    "find . -name '*.jpg' | ocr predict checkpoint_path=exported images=- on_bad_sample=skip",
)
def predict(context: typer.Context) -> None:
    """Find the text on images and PDFs: JSON, CSV, COCO, files for labelling tools, drawn pages.

    `images` is a folder, a file, a pattern, or - for names on standard input. Pages that are in `out` already are not
    done again, so that the same command goes on where it was stopped. `--cfg job` shows all settings.
    """
    _become("predict", context.args)


@_job("ocr sweep checkpoint_path=best.ckpt dataset_base_path=DIR --keep-original")
def sweep(context: typer.Context) -> None:
    """Find the best settings for the boxes of a checkpoint, and write them into it.

    Takes the KEY=VALUE of `ocr train`. `--keep-original` keeps the file from before as best.original.ckpt.
    """
    _become("sweep", context.args)


@_job(
    "ocr inspect checkpoint_path=best.ckpt dataset_base_path=DIR out=inspection",
    "ocr inspect --compare before.ckpt after.ckpt dataset_base_path=DIR",
    options="[--compare A.ckpt B.ckpt]",
)
def inspect(context: typer.Context) -> None:
    """Find out what is wrong with a checkpoint: every error with its cause, and what would help.

    Takes the KEY=VALUE of `ocr train`. Writes tables, and atlas.html with all pages and errors drawn. `--compare`
    shows what got better and worse from one checkpoint to another.
    """
    _become("inspect", context.args)


@_job(
    "ocr label-next checkpoint_path=best.ckpt images=FOLDER labelled=DIR --pages 20",
    "ocr label-next images=FOLDER --tasks cvat --out next.xml --csv ranking.csv",
    name="label-next",
    options="[--pages N] [--tasks FORMAT --out FILE] [--json FILE] [--csv FILE]",
)
def label_next(context: typer.Context) -> None:
    """Choose the pages that are worth labelling next, and write them as tasks with boxes to correct.

    Pages come first if the detector is unsure of them, and if they are unlike each other and those of `labelled`: a
    dataset, or an annotation of pages in `images`. `--cfg job` shows all settings.
    """
    _become("label_next", context.args)


@_job(
    "ocr export checkpoint_path=best.ckpt format=onnx dataset_base_path=DIR out=exported",
    "ocr export checkpoint_path=best.ckpt format=openvino precision=int8 dataset_base_path=DIR out=small",
    options="[--force]",
)
def export(context: typer.Context) -> None:
    """Write a checkpoint for another runtime (ONNX, OpenVINO, TorchScript, torch.export, TensorRT).

    The pages of `dataset_base_path` or `images` run through both; a model that finds other boxes is not written
    unless --force is given. `--cfg job` shows all settings.
    """
    _become("export", context.args)


app.command(rich_help_panel=TRAINING, epilog=_examples(*SERVE_EXAMPLES))(serve)


@_job(
    "ocr advise dataset_base_path=DIR",
    "ocr advise dataset_base_path=DIR step_ms=60 apply=true html=advice.html",
    panel=SPEED,
)
def advise(context: typer.Context) -> None:
    """Run a configuration and changes of it for a few seconds each, and say what would make training faster.

    Takes the KEY=VALUE of `ocr train`, and step_ms=N (else the model is measured), split=val, stages=true,
    verify=true, apply=true (for data=tuned), compile=true, all_rows=true, html=FILE, json=FILE.
    """
    _become("job", context.args, package="ocr.advisor")


app.command(rich_help_panel=SPEED, epilog=_examples(*REPORT_EXAMPLES))(report)


@app.command("compile", rich_help_panel=STORAGE, epilog=_examples("ocr compile"))
def compile_kernels() -> None:
    """Compile the kernels now, once per machine, instead of before the first training."""
    from ocr.geometry.kernels.warm_up import warm_up

    warm_up()
    typer.echo("all kernels are compiled")


app.command(
    rich_help_panel=STORAGE,
    epilog=_examples("ocr convert DIR", "ocr convert DIR SHARDS --split val --ready --verify"),
)(convert)
app.add_typer(cache_app, name="cache", rich_help_panel=STORAGE)


def main(*words: str) -> None:
    """Run the command line, with these words before its arguments."""
    with one_line_errors():
        app([*words, *sys.argv[1:]], prog_name="ocr")


if __name__ == "__main__":
    main()

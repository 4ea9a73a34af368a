"""glyphfeed export: models of other runtimes that find what the checkpoint finds."""

import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from rejection import rejects
from rich.console import Console

from ocr import Detector
from ocr.deploy import export_check, formats
from ocr.deploy import quantize as quantizing
from ocr.deploy.export import CheckError, Export, Exporter
from ocr.deploy.graph import exportable
from ocr.deploy.inputs import PageSource
from ocr.deploy.quantize import quantize
from ocr.deploy.runtimes import open_model, torch_runtime
from ocr.deploy.runtimes.torch_runtime import wrap_detector
from ocr.errors import ConfigError, MissingExtraError
from ocr.models.detector import TextDetector
from ocr.models.load import load_detector
from ocr.models.packaged import packaged_detector
from ocr.models.settings import DetectorSettings
from ocr.optional import EXTRAS
from ocr.pipeline.device import Normalize
from ocr.pipeline.source import open_folder

KINDS = [*((name, "fp32") for name in ("onnx", "openvino", "torchscript")), ("openvino", "bf16")]
SIZES = [(1, 64, 96), (3, 96, 64)]


@pytest.fixture(scope="session")
def onnx_model(checkpoint):
    """Exported once per session: it takes seconds."""
    pytest.importorskip("onnxscript")
    pytest.importorskip("onnxruntime")
    detector, _ = load_detector(checkpoint)
    return formats.onnx_model(exportable(detector, Normalize()))


@pytest.fixture
def pages(folder):
    source = open_folder(folder / "images", folder / "labels.json")
    return [
        PageSource(name, None, partial(lambda index, decode: decode(source.read(index)), index))
        for index, name in enumerate(source.names)
    ]


@pytest.fixture
def run_export(checkpoint, pages, monkeypatch, onnx_model, tmp_path):
    """Export the tiny detector; the ONNX model of the session is used again."""
    monkeypatch.setattr(formats, "onnx_model", lambda graph: deepcopy(onnx_model))

    def run(format, precision="fp32", console=None, **options):
        detector, settings = load_detector(checkpoint)
        request = Export(format, precision, tmp_path / "out", pages, **options)
        exporter = Exporter(request, console or Console(quiet=True))
        return exporter.run(detector, settings, Detector(wrap_detector(detector, settings)))

    return run


@pytest.mark.parametrize(("format", "precision"), KINDS)
def test_an_exported_model_is_read_back_and_gives_the_same_maps_at_any_size(
    run_export, checkpoint, tmp_path, format, precision
):
    pytest.importorskip("openvino")
    check = run_export(format, precision, force=precision != "fp32")
    assert check.hmean is not None
    assert check.boxes[0] > 3
    exported, original = open_model(tmp_path / "out"), open_model(checkpoint)
    assert (exported.info.format, exported.info.precision) == (format, precision)
    assert exported.info.settings == original.info.settings
    assert exported.info.check["boxes"] == list(check.boxes)
    for size in SIZES:
        given = np.random.default_rng(0).integers(0, 256, (*size, 3), dtype=np.uint8)
        maps = exported.runtime(given)
        assert maps.dtype == np.float32
        assert np.allclose(maps, original.runtime(given), atol=1e-4 if precision == "fp32" else 0.1)
    if precision == "fp32":
        assert check.failures == []
        assert check.outline_pixels == pytest.approx(0, abs=0.01)


@pytest.mark.parametrize("format", ["onnx", "openvino"])
def test_threads_that_share_a_detector_get_the_maps_of_their_own_pages(run_export, tmp_path, format):
    pytest.importorskip("openvino")
    run_export(format)
    runtime = open_model(tmp_path / "out").runtime
    pages = np.random.default_rng(0).integers(0, 256, (8, 1, 128, 160, 3), dtype=np.uint8)
    expected = [runtime(page) for page in pages]
    with ThreadPoolExecutor(4) as threads:
        for _ in range(4):
            found = list(threads.map(runtime, pages))
            assert all(np.allclose(*pair, atol=1e-5) for pair in zip(found, expected, strict=True))


@pytest.mark.parametrize("bundled", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_a_detector_with_a_pooling_layer_has_the_same_maps_in_onnx_runtime(page, bundled):
    # Its zeros before a MaxPool became minus infinity there, and its maps others at the lower edge.
    library, _ = pytest.importorskip("onnxruntime"), pytest.importorskip("onnxscript")
    detector, settings = TextDetector("test_resnet", channels=16).eval(), DetectorSettings({"encoder": "test_resnet"})
    if bundled:
        detector, settings = load_detector(packaged_detector())
    model = formats.onnx_model(exportable(detector, Normalize()))
    session = library.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    pages = np.pad(page, ((0, 20), (0, 28), (0, 0)))[None]
    (maps,) = session.run(None, {"pages": pages})
    assert np.abs(maps - wrap_detector(detector, settings).runtime(pages)).max() < 1e-4


def test_the_example_without_this_package_finds_boxes_on_a_page(run_export, folder, tmp_path):
    run_export("onnx")
    program = Path(__file__).parents[2] / "examples" / "exported_model.py"
    assert not re.search(r"^(import|from) ocr\b", program.read_text(), re.MULTILINE)
    command = [sys.executable, str(program), str(tmp_path / "out" / "model.onnx"), str(folder / "images" / "0.png")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert len(re.findall(r"\[\[", done.stdout)) > 3


def test_an_earlier_export_is_replaced_whole_and_nothing_else_is_left(run_export, tmp_path):
    run_export("torchscript")
    run_export("onnx")
    assert sorted(os.listdir(tmp_path / "out")) == ["README.md", "model.onnx"]
    assert os.listdir(tmp_path) == ["out"]


def test_int8_is_calibrated_and_smaller(run_export, pages, tmp_path):
    run_export("onnx")
    size = (tmp_path / "out" / "model.onnx").stat().st_size
    check = run_export("onnx", "int8", calibration=pages, force=True)
    assert (tmp_path / "out" / "model.onnx").stat().st_size < 0.6 * size
    assert 0 < check.agreement <= 1
    assert Detector.load(tmp_path / "out").info.precision == "int8"


def test_int8_leaves_the_end_in_float32_and_layers_that_change_too_much(onnx_model, monkeypatch):
    given = [np.random.default_rng(0).integers(0, 256, (1, 64, 64, 3), dtype=np.uint8)]
    everything = next(quantize(onnx_model, given, 0.5))
    last = [node for node in everything.model.graph.node if node.op_type == "Conv"][-1]
    assert not last.input[1].endswith("DequantizeLinear_Output")
    monkeypatch.setattr(quantizing, "MAX_CHANGED", -1.0)
    monkeypatch.setattr(quantizing, "GROUPS", 2)
    monkeypatch.setattr(quantizing, "MAX_FLOAT_GROUPS", 1)
    told = []
    (chosen,) = quantize(onnx_model, given, 0.5, told.append)
    assert chosen.changed <= everything.changed
    assert "measuring 2 groups" in told[0]


@pytest.fixture
def no_int8_passes(monkeypatch):
    monkeypatch.setattr(quantizing, "MAX_CHANGED", 1.0)
    monkeypatch.setattr(quantizing, "GROUPS", 2)
    monkeypatch.setattr(quantizing, "MAX_FLOAT_GROUPS", 2)
    monkeypatch.setitem(export_check.HMEAN_TOLERANCE, "int8", -2.0)


def test_int8_that_fails_its_check_is_tried_again_with_more_layers_in_float32(
    run_export, pages, no_int8_passes, monkeypatch, tmp_path
):
    monkeypatch.setitem(export_check.HMEAN_TOLERANCE, "bf16", -2.0)
    shown = Console(record=True, width=200)
    with rejects(CheckError, setting="--precision", value="int8", path=tmp_path / "out-int8-failed") as caught:
        run_export("onnx", "int8", shown, calibration=pages)
    left = [int(count) for count in re.findall(r"(\d+) layers left in float32", shown.export_text())]
    assert len(left) == 3
    assert left == sorted(set(left))
    assert left[0] == 0
    # bf16 was tried, and failed too.
    assert "bf16 passes" not in str(caught.value)


def test_int8_that_fails_is_kept_under_a_name_that_says_so_with_its_table_and_bf16_is_proposed(
    run_export, pages, no_int8_passes, monkeypatch, tmp_path
):
    pytest.importorskip("openvino")
    monkeypatch.setitem(export_check.HMEAN_TOLERANCE, "bf16", 2.0)
    with rejects(CheckError, path=tmp_path / "out-int8-failed") as caught:
        run_export("onnx", "int8", calibration=pages)
    assert "--to openvino --precision bf16 passes" in str(caught.value)
    assert os.listdir(tmp_path) == ["out-int8-failed"]
    kept = open_model(tmp_path / "out-int8-failed").info
    assert (kept.precision, len(kept.check["failures"])) == ("int8", 1)
    card = (tmp_path / "out-int8-failed" / "README.md").read_text()
    assert f"| {kept.check['hmean'][1]:.4f} |" in card


def test_every_candidate_of_int8_uses_the_ranges_and_the_boxes_that_were_found_once(
    run_export, pages, no_int8_passes, monkeypatch
):
    monkeypatch.setattr(export_check, "TIMED_PAGES", 1)
    library = pytest.importorskip("onnxruntime.quantization.calibrate")
    collected, found = [], []
    collect, run = library.MinMaxCalibrater.collect_data, torch_runtime.TorchRuntime.__call__
    monkeypatch.setattr(
        library.MinMaxCalibrater, "collect_data", lambda self, reader: (collected.append(1), collect(self, reader))[1]
    )
    monkeypatch.setattr(
        torch_runtime.TorchRuntime, "__call__", lambda self, maps: (found.append(1), run(self, maps))[1]
    )
    with rejects(CheckError, value="int8"):
        run_export("onnx", "int8", calibration=pages)
    assert len(collected) == 1
    # Three candidates and bf16: a warm-up and a timed run of the first page for each, and the others once.
    assert len(found) == 4 * 2 + (len(pages) - 1)


def test_a_model_that_finds_other_boxes_is_not_put_in_its_place_unless_forced(run_export, monkeypatch, tmp_path):
    honest = formats.torchscript_saver

    def spoiled(graph):
        with torch.no_grad():
            graph.detector.head.prob[1].bias.add_(2.0)
        return honest(graph)

    monkeypatch.setattr(formats, "torchscript_saver", spoiled)
    with rejects(CheckError, setting="--precision", value="fp32", path=tmp_path / "out-fp32-failed"):
        run_export("torchscript")
    assert os.listdir(tmp_path) == ["out-fp32-failed"]
    check = run_export("torchscript", force=True)
    assert open_model(tmp_path / "out").info.check["failures"] == check.failures != []


@pytest.mark.parametrize(
    ("format", "precision", "setting", "value"),
    [
        ("onx", "fp32", "--to", "onx"),
        ("onnx", "bf16", "--precision", "bf16"),
        ("torchscript", "int8", "--precision", "int8"),
        ("onnx", "int8", "--calibration", None),
    ],
)
def test_what_cannot_be_exported_is_refused_before_anything_is_computed(run_export, format, precision, setting, value):
    with rejects(ConfigError, setting=setting, value=value):
        run_export(format, precision)


def test_a_link_keeps_leading_to_the_folder_of_the_export(run_export, tmp_path):
    (tmp_path / "disk" / "models").mkdir(parents=True)
    (tmp_path / "out").symlink_to(tmp_path / "disk" / "models")
    run_export("torchscript")
    assert (tmp_path / "out").is_symlink()
    assert sorted(file.name for file in (tmp_path / "disk" / "models").iterdir()) == ["README.md", "model.torchscript"]


def test_a_folder_with_other_files_is_not_replaced(run_export, tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "thesis.tex").write_text("years of work")
    with rejects(ConfigError, setting="--out", path=tmp_path / "out"):
        run_export("torchscript")
    assert (tmp_path / "out" / "thesis.tex").exists()


@pytest.mark.parametrize(
    ("format", "module"), [("onnx", "onnxruntime"), ("openvino", "openvino"), ("tensorrt", "tensorrt")]
)
def test_a_format_that_is_not_installed_names_its_extra(run_export, monkeypatch, format, module):
    monkeypatch.setitem(sys.modules, module, None)
    with rejects(MissingExtraError, setting=EXTRAS[module], value=module):
        run_export(format)


@pytest.mark.parametrize("name", ["model.onnx", "model.xml", "model.torchscript", "model.engine"])
def test_a_damaged_model_is_refused_by_name(tmp_path, name):
    for module in ("onnxruntime", "openvino"):
        pytest.importorskip(module)
    (tmp_path / name).write_bytes(b"no model of any kind")
    with rejects(ConfigError, path=tmp_path / name):
        open_model(tmp_path / name)


def test_a_model_of_another_program_and_one_of_a_newer_version_are_refused(onnx_model, run_export, tmp_path):
    import onnx

    run_export("onnx")
    path = tmp_path / "out" / "model.onnx"
    model = onnx.load(path)
    newer = {entry.key: entry.value.replace('"format": 1,', '"format": 99,') for entry in model.metadata_props}
    onnx.helper.set_model_props(model, newer)
    onnx.save(model, path)
    with rejects(ConfigError, setting="format", value=99, path=path):
        open_model(path)
    del model.metadata_props[:]
    onnx.save(model, path)
    with rejects(ConfigError, setting=None, value=None, path=path):
        open_model(path)

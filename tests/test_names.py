"""The names that users already have must stay."""

import importlib
import inspect
import json
import os
import subprocess
import sys

import pytest
from rejection import rejects

from ocr.errors import MissingExtraError
from ocr.optional import EXTRAS

OFFLINE = ("NO_ALBUMENTATIONS_UPDATE", "RAY_USAGE_STATS_ENABLED")
NAMES = {
    "ocr": [
        "OCRDataset",
        "OCRWebDataset",
        "DBTransforms",
        "DBCollateFN",
        "Detector",
        "ConditionalNormalize",
        "Loader",
        "OCRDataModule",
        "ShapeBatchSampler",
        "TextDetector",
        "HmeanIoU",
        "CLEvalMetric",
        "cached",
    ],
    "ocr.datasets": ["OCRDataset", "OCRWebDataset", "DALIDataLoader", "DBTransforms", "DBCollateFN"],
    "ocr.datasets.transforms": ["ConditionalNormalize", "DBTransforms"],
    "ocr.formats": ["FORMATS", "Annotations", "Page", "Word", "read_annotations", "write_annotations", "write_native"],
    "ocr.models": ["TextDetector", "DBLoss", "Prediction"],
    "ocr.evaluation": ["HmeanIoU", "CLEvalMetric", "BoxesFromMap", "Detections", "BoxPool"],
    "ocr.lightning_modules.ocr_pl": ["OCRPLModule"],
    "ocr.datasets.data_module": ["OCRDataModule"],
    "ocr.pipeline": ["STAGES"],
    "ocr.pipeline.sample": ["Sample", "Polygons", "Maps"],
    "ocr.pipeline.stage": ["FixedStage", "RandomStage"],
    "ocr.pipeline.source": ["FolderSource", "open_folder"],
    "ocr.pipeline.decode": ["Decode"],
    "ocr.pipeline.prefix": ["Letterbox"],
    "ocr.pipeline.suffix": [
        "ColourJitter",
        "JpegNoise",
        "RandomBlur",
        "RandomFlip",
        "RandomRotate",
        "RandomScale",
        "TextAwareCrop",
    ],
    "ocr.pipeline.targets": ["Targets"],
    "ocr.pipeline.device": ["Normalize"],
    "ocr.datasets.base": ["OCRDataset"],
    "ocr.datasets.build": ["build_dataset", "make"],
    "ocr.datasets.db_collate_fn": ["DBCollateFN"],
    "ocr.datasets.webdataset": ["OCRWebDataset"],
    "ocr.loader": ["Loader"],
    "ocr.tools.synth": ["synthesize", "render_page"],
    "ocr.tools.doctor": ["examine", "write_fixed", "write_html"],
    "ocr.errors": [
        "GlyphFeedError",
        "ConfigError",
        "MissingExtraError",
        "DataError",
        "AnnotationError",
        "ImageError",
        "MapError",
    ],
}


@pytest.mark.parametrize(("module", "name"), [(module, name) for module, names in NAMES.items() for name in names])
def test_a_public_name_is_where_users_import_it_from(module, name):
    assert hasattr(importlib.import_module(module), name)


def test_OCRDataset_takes_the_arguments_that_existing_configs_give_in_their_order():
    from ocr.datasets import OCRDataset

    parameters = inspect.signature(OCRDataset).parameters
    positional = [name for name, parameter in parameters.items() if parameter.kind is parameter.POSITIONAL_OR_KEYWORD]
    assert positional == [
        "image_path",
        "annotation_path",
        "transform",
        "image_extensions",
        "preload_maps",
        "preload_images",
        "prenormalize_images",
        "image_loading_config",
        "cache_transformed_tensors",
    ]
    defaults = {name: parameters[name].default for name in positional[3:]}
    assert defaults == {
        "image_extensions": None,
        "preload_maps": False,
        "preload_images": False,
        "prenormalize_images": False,
        "image_loading_config": None,
        "cache_transformed_tensors": False,
    }


def test_DBCollateFN_has_the_published_defaults():
    from ocr.datasets import DBCollateFN

    parameters = inspect.signature(DBCollateFN).parameters
    assert {name: parameter.default for name, parameter in parameters.items()} == {
        "shrink_ratio": 0.4,
        "thresh_min": 0.3,
        "thresh_max": 0.7,
    }


def test_a_name_that_is_not_there_is_an_AttributeError():
    for module in ("ocr", "ocr.datasets", "ocr.datasets.transforms"):
        with pytest.raises(AttributeError, match="NoSuchName"):
            importlib.import_module(module).NoSuchName  # noqa: B018


def test_every_public_name_is_listed():
    assert set(NAMES["ocr"]) == set(importlib.import_module("ocr").__all__)
    assert set(NAMES["ocr"]) <= set(dir(importlib.import_module("ocr")))


def test_importing_the_package_loads_no_other_library():
    code = (
        "import json, sys; before = set(sys.modules); import ocr; print(json.dumps(sorted(set(sys.modules) - before)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = {name.partition(".")[0] for name in json.loads(done.stdout)}
    assert loaded <= {"ocr", *sys.stdlib_module_names}


def test_importing_the_package_keeps_optional_libraries_off_the_network():
    asked = {name: value for name, value in os.environ.items() if name not in OFFLINE}
    code = f"import os, ocr; print(*(os.environ[name] for name in {list(OFFLINE)}))"
    for given, expected in ({}, "1 0"), (dict.fromkeys(OFFLINE, "x"), "x x"):
        done = subprocess.run(
            [sys.executable, "-c", code], env=asked | given, capture_output=True, text=True, check=True
        )
        assert done.stdout.split() == expected.split()


def test_help_and_completion_look_at_every_name_without_any_extra(monkeypatch):
    import ocr
    import ocr.datasets.conditional_normalize

    for module in EXTRAS:
        monkeypatch.setitem(sys.modules, module, None)
    name = "ocr.datasets.conditional_normalize"
    monkeypatch.setattr(sys.modules["ocr.datasets"], "conditional_normalize", sys.modules[name])
    monkeypatch.delitem(sys.modules, name)
    assert "ConditionalNormalize" in dir(ocr)
    assert {name for name in ocr.__all__ if inspect.getdoc(getattr(ocr, name)) is None} == set()
    with rejects(MissingExtraError, setting="albumentations", value="albumentations"):
        ocr.ConditionalNormalize()


def test_the_bundled_detector_needs_neither_lightning_nor_torchvision():
    code = (
        "import sys; import numpy as np, ocr; found = ocr.Detector.load()(np.zeros((64, 64, 3), dtype=np.uint8));"
        "print(*sorted({'lightning', 'torchvision', 'timm', 'albumentations', 'hydra'} & set(sys.modules)), len(found))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=600, check=True)
    assert done.stdout == "0\n"

"""What is optional names the extra that brings it."""

import subprocess
import sys
import tomllib
from importlib.util import find_spec
from pathlib import Path

import pytest

from ocr.errors import ConfigError, GlyphFeedError, MissingExtraError, near_names
from ocr.optional import EXTRAS, require


def test_an_installed_module_is_handed_over(monkeypatch):
    monkeypatch.setitem(EXTRAS, "json", "json")
    assert require("json", "Reading").loads("1") == 1


@pytest.mark.parametrize(("module", "extra"), EXTRAS.items())
def test_a_missing_module_names_its_purpose_and_the_extra(monkeypatch, module, extra):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingExtraError) as caught:
        require(module, "Loading shards")
    assert f"Loading shards needs {module}" in str(caught.value)
    assert f"pip install 'glyphfeed[{extra}]'" in str(caught.value)


def test_openvino_is_imported_without_its_usage_statistics():
    if find_spec("openvino") is None:
        pytest.skip("openvino is not installed")
    code = (
        "import sys; from ocr.optional import require; require('openvino', 'A test'); "
        "print([name for name in sys.modules if name.startswith('openvino_telemetry') and sys.modules[name]])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_missing_extra_can_be_caught_as_a_setting_or_as_an_import():
    assert issubclass(MissingExtraError, ConfigError)
    assert issubclass(MissingExtraError, ImportError)
    assert issubclass(MissingExtraError, GlyphFeedError)


def test_every_extra_is_one_that_the_package_declares():
    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]
    assert set(EXTRAS.values()) <= project["optional-dependencies"].keys()


def test_a_mistyped_name_is_answered_with_the_near_ones():
    assert near_names("scald", ["scaled", "max_pixels"]) == "Did you mean scaled? Known: max_pixels, scaled"
    assert near_names("xyz", ["scaled", "max_pixels"]) == "Known: max_pixels, scaled"

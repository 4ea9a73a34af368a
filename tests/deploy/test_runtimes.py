"""Runtimes: what a model file needs is told with its name."""

import sys

import pytest
from rejection import rejects

from ocr.deploy.runtimes import open_model
from ocr.errors import MissingExtraError


@pytest.mark.parametrize(("name", "library"), [("model.onnx", "onnxruntime"), ("model.xml", "openvino")])
def test_a_missing_library_is_named_with_the_file_that_needs_it(tmp_path, monkeypatch, name, library):
    (tmp_path / name).write_bytes(b"a model")
    monkeypatch.setitem(sys.modules, library, None)
    with rejects(MissingExtraError, setting="export", value=library) as caught:
        open_model(tmp_path / name)
    assert name in str(caught.value)

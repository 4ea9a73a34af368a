"""Modules that a test writes and edits."""

import importlib
import sys

import pytest


@pytest.fixture
def write_module(tmp_path, monkeypatch):
    """Write a file of a package that only this test has, as an editor would between two runs."""
    package = f"stages_of_{tmp_path.name.replace('-', '_')}"
    (tmp_path / package).mkdir()
    (tmp_path / package / "__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path)

    def write(name, text):
        path = tmp_path / package / f"{name}.py"
        path.write_text(text.replace("PACKAGE", package))
        for module in [module for module in sys.modules if module.startswith(package)]:
            del sys.modules[module]
        importlib.invalidate_caches()
        return f"{package}.{name}"

    return write

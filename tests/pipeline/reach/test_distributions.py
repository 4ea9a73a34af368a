"""distributions: which folder of installed packages a module lies in, loaded or not."""

import sys

from ocr.pipeline.reach.distributions import _site_folder


def test_modules_packages_and_packages_without_a_file_are_found_before_they_are_loaded(tmp_path, monkeypatch):
    site = tmp_path / "site-packages"
    for name in ("glyph_package", "glyph_namespace"):
        (site / name).mkdir(parents=True)
    (site / "glyph_module.py").touch()
    (site / "glyph_package" / "__init__.py").touch()
    monkeypatch.syspath_prepend(str(site))
    names = ("glyph_module", "glyph_package", "glyph_package.part", "glyph_namespace")
    assert [_site_folder(name) for name in names] == [str(site)] * 4
    assert not any(name in sys.modules for name in names)
    assert _site_folder("glyph_nowhere") is None


def test_what_is_not_installed_lies_in_no_such_folder():
    assert _site_folder("ocr.pipeline.reach.distributions") is None
    assert _site_folder("builtins") is None
    assert _site_folder("numpy.linalg") == _site_folder("numpy") is not None

"""The detector of the package: the file that is in it, and how another one would get there."""

import shutil

from rejection import rejects

from ocr.errors import ConfigError
from ocr.models.load import read_detector
from ocr.models.packaged import PACKAGED, packaged_detector
from ocr.tools import package_weights


def test_a_detector_becomes_that_of_the_package_and_names_its_command(tmp_path, monkeypatch, capsys):
    trained, place = tmp_path / "trained.safetensors", tmp_path / "data" / PACKAGED.name
    shutil.copy(packaged_detector(), trained)
    monkeypatch.setattr(package_weights, "PACKAGED", place)
    package_weights.main(str(trained))
    assert "glyphfeed.safetensors: 4.2 MB" in capsys.readouterr().out
    settings = read_detector(place).settings
    assert settings is not None
    assert settings.provenance.command == "make weights"
    monkeypatch.setattr(package_weights, "MAX_BYTES", 1000)
    with rejects(ConfigError, value=trained.stat().st_size, path=trained):
        package_weights.main(str(trained))
    assert not place.exists()

"""The log of predictions: lines that are whole, but not what was written, are refused by name."""

import pytest
from rejection import rejects

from ocr.deploy.prediction_log import NAME, PredictionLog
from ocr.errors import ConfigError

LINES = {
    "no name": b'{"stamp": [1, 2], "words": {}}',
    "no stamp": b'{"name": "a.jpg", "words": {}}',
    "a name that is a list": b'{"name": ["a.jpg"], "stamp": [1, 2]}',
    "a list": b"[]",
    "nesting without end": b"[" * 100_000,
}


@pytest.mark.parametrize("line", LINES.values(), ids=LINES)
def test_a_line_that_is_no_page_is_refused_by_the_name_of_the_file(tmp_path, line):
    (tmp_path / NAME).write_bytes(b"{}\n" + line + b"\n")
    with rejects(ConfigError, setting="out", path=tmp_path / NAME):
        PredictionLog(tmp_path, {})

"""JSON piece by piece: the same values as in one piece, wherever a piece ends."""

import io
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ocr.formats import json_stream
from ocr.formats.json_stream import JsonStream

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch):
    monkeypatch.setattr(json_stream, "CHUNK_BYTES", 3)


@given(st.dictionaries(st.text(), VALUES, max_size=4), st.dictionaries(st.text(), VALUES), st.booleans())
def test_members_and_other_fields_are_those_of_the_whole(members, others, ascii_only):
    document = {name: value for name, value in others.items() if name != "images"} | {"images": members, "z": 12345}
    text = json.dumps(document, ensure_ascii=ascii_only, indent=1).encode(errors="surrogatepass")
    stream = JsonStream(io.BytesIO(text), "images")
    found = list(stream)
    assert {member.name: member.value for member in found} == members
    assert all(json.loads(member.text) == member.value for member in found)
    assert stream.rest == {name: value for name, value in document.items() if name != "images"}


def test_the_members_of_a_list_have_no_name():
    found = list(JsonStream(io.BytesIO(b'{"samples": [[1, 2], 3, "x"]}'), "samples"))
    assert [(member.name, member.value) for member in found] == [(None, [1, 2]), (None, 3), (None, "x")]
    assert list(JsonStream(io.BytesIO(b'{"samples": []}'), "samples")) == []


@pytest.mark.parametrize(
    ("text", "offset"),
    [
        ("", 0),
        ("[]", 0),
        ("{}", 2),
        ('{"images": 3}', 11),
        ('{"images": {"a": 1} "b": 2}', 20),
        ('{"images": {"a" 1}}', 16),
        ('{"images": {a: 1}}', 12),
        ('{"images": {"a": [1, }}', 21),
        ('{"images": {"a": "x', 17),
        ('{"images": {"a": 1}', 19),
        ('{"images": {}, "images": {}}', 24),
        ('{"images": {}} x', 15),
    ],
)
def test_what_is_not_json_is_refused_with_its_offset(text, offset):
    with pytest.raises(ValueError, match=f" at character {offset}$"):
        list(JsonStream(io.BytesIO(text.encode()), "images"))


def test_an_error_is_raised_before_the_rest_is_read():
    stream = io.BytesIO(b'{"images": {"a": [1 2]' + b" " * 10**6 + b"}}")
    with pytest.raises(ValueError, match=r" at character 20$"):
        list(JsonStream(stream, "images"))
    assert stream.tell() < 1000

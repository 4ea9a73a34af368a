"""The atlas as a file: pictures, and names that stay text. How it works in a browser: test_atlas_browser.py."""

import re
from dataclasses import replace

from judged_pages import HOSTILE, ONE, SEEN, WORDS, inspection, judged, make_page

from ocr.inspect.atlas import take_picture, write_atlas


def test_a_picture_is_the_page_without_padding_and_no_larger_than_asked():
    given = make_page(WORDS, SEEN)
    padded = replace(given, size=(128, 256))
    picture = take_picture(padded, 100)
    assert (picture.width, picture.height) == (50, 100)
    assert picture.webp[8:12] == b"WEBP"
    assert take_picture(given, 2000).width == 256


def test_an_atlas_is_one_file_in_which_names_are_text(tmp_path):
    found = inspection(judged([ONE], [(ONE, 0.8)], name="clean.png"), judged(WORDS, SEEN, name=HOSTILE))
    picture = take_picture(make_page(WORDS, SEEN), 100)
    write_atlas(found, {page.name: picture for page in found.pages}, tmp_path / "atlas.html")
    page = (tmp_path / "atlas.html").read_text()
    assert "clean.png" in page
    assert HOSTILE not in page
    assert page.count("</script>") == len(re.findall("<script", page))
    assert not re.search(r"<link|@import|\bsrc=[\"']http", page)

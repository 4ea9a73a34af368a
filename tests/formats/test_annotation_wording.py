"""What a user reads about an annotation that cannot be read, or that is read only in part."""

import json
from dataclasses import replace

from format_examples import BOXES, JSON, XML, region, shape, via_region, write_example

from ocr.errors import GlyphFeedError
from ocr.formats import Annotations, Page, Word, read_annotations, write_annotations
from ocr.formats.validate import to_polygons

QUAD = "1,2,9,2,9,5,1,5"
SQUARE = [[0, 0], [9, 0], [9, 5], [0, 5]]
BOX = BOXES[0]
COCO_IMAGE = {"id": 1, "file_name": "a.jpg"}
TASK = JSON["label_studio"][0]


def coco(*annotations, images=(COCO_IMAGE,)):
    return {"images": list(images), "annotations": list(annotations)}


def task(**changed):
    parts = [part | (changed if part["type"] == "rectangle" else {}) for part in region("x1", BOX, "Text", "a")]
    return [{**TASK, "annotations": [{"id": 1, "result": parts}]}]


def labelme(**changed):
    return JSON["labelme"] | {"shapes": [shape(BOX) | changed]}


def mmocr(page):
    return {"metainfo": {}, "data_list": [page, page]}


# The format that is asked for, what the file holds, and its name if it is not that of the example.
FILES = [
    ("auto", "", "a.txt"),
    ("auto", "hello\n0 48 63 69 71\n", "a.txt"),
    ("auto", "1,2,###\n", "a.txt"),
    ("auto", {"Blocks": []}, "a.json"),
    ("auto", {"pages": {}}, "a.json"),
    ("auto", "PK", "a.zip"),
    ("auto", b"caf\xe9", "a.txt"),
    ("icdar15", "", "a.txt"),
    ("native", "{", "a.json"),
    ("native", {"pages": {}}, "a.json"),
    ("native", {"images": {"a.jpg": {"words": {"1": {}, "2": [[0, 0]]}}}}, "a.json"),
    ("native", {"images": {"a.jpg": {"words": {"1": {"illegibility": "no"}}}}}, "a.json"),
    ("native", {"images": {"a.jpg": {"img_w": 0, "img_h": 9}}}, "a.json"),
    ("native", '{"images": {"a.jpg": {"words": {"1": {"points": 1}}, "words": {"2": {"points": 1}}}}}', "a.json"),
    ("coco", coco({"id": 7, "image_id": 3}, {"id": 8, "image_id": 1}), "a.json"),
    ("coco", coco({"id": 7, "image_id": 1, "segmentation": {"counts": "a"}}), "a.json"),
    ("coco", coco(images=[{"id": 1}]), "a.json"),
    ("coco", coco(images=[COCO_IMAGE, COCO_IMAGE]), "a.json"),
    ("icdar2015", f"{QUAD},a\nhello\n", None),
    ("icdar2015", "0,0,5,1,9,0,9,5,5,6,0,5,a\n", None),
    ("icdar2013", f"{QUAD},a\n1,2,9,5,2015\n", None),
    ("icdar2013", "0 0 523 467 315 40 0.1\n0 0.48 0.63 0.69 0.71\n", None),
    ("ctw1500", "1,2,3,####a\n", None),
    ("ctw1500", XML["cvat"], None),
    ("ctw1500", "<a><image><box><segs>1,2,x,4</segs></box></image></a>", None),
    ("total_text", "x: [[1 2 3]], y: [[1 2]], ornt: [u'c'], transcriptions: [u'a']\n", None),
    ("total_text", "0,0,9,0,9,5,one\n1,2,3,4,two\n", None),
    ("td500", "0 0 10 10 80 20 90\n", None),
    ("yolo", "0 0.5 0.5 0.1 0.1\n", None),
    ("alto", XML["alto"].replace("<MeasurementUnit>pixel", "<MeasurementUnit>mm10"), None),
    ("alto", XML["alto"].replace("<MeasurementUnit>pixel", "<MeasurementUnit>point"), None),
    ("alto", XML["alto"].replace('HPOS="10"', 'HPOS="x"', 1).replace('<String ID="s1"', '<SP ID="s1"'), None),
    ("paddle", 'a.jpg\t[]\nb.jpg\na.jpg\t[{}]\nc.jpg\t[{"points": []}, 5]\n', None),
    ("wildreceipt", '{"file_name": "a.jpg", "annotations": [{"segmentation": [], "bbox": [1, 2, 3, 4]}]}\n{', None),
    ("cvat", XML["cvat"].replace('ytl="10.00"', 'ytl="x"'), None),
    ("cvat", XML["cvat"].replace("10.00,40.00;", "10.00;"), None),
    ("cvat", '<annotations><track id="0" label="text"/></annotations>', None),
    ("page_xml", XML["page_xml"].replace("90,10", "90"), None),
    ("pascal_voc", XML["pascal_voc"].replace("<xmin>10</xmin>", ""), None),
    ("pascal_voc", "<!DOCTYPE a><annotation/>", None),
    ("pascal_voc", "<annotation>", None),
    ("label_studio", task(image_rotation=90), None),
    ("label_studio", task(original_width=None), None),
    ("label_studio", task(type="brushlabels"), None),
    ("label_studio", [TASK | {"annotations": []}], None),
    ("labelme", labelme(shape_type="circle"), None),
    ("labelme", labelme(label=3), None),
    ("labelme", labelme(points=[[1, "x"], [2, 3]]), None),
    ("via", {"a.jpg9": {"filename": "a.jpg", "regions": [via_region(BOX), {"shape_attributes": None}]}}, None),
    ("mmocr", mmocr({"img_path": "a.jpg", "instances": [{"bbox": [1, 2, 3]}]}), None),
    ("cord", {"valid_line": [{"words": [{"quad": {"x1": 1}, "text": "a"}]}]}, None),
    ("funsd", {"form": [{"words": [{"box": [1, 2, 3], "text": "a"}]}]}, None),
    ("hiertext", {"annotations": [{"image_id": "a", "paragraphs": 3}]}, None),
    ("lsvt", {"a": [{"points": 3}, 4]}, None),
    ("rects", {"lines": [{"points": 3}]}, None),
    ("doctr", {"a.jpg": {"img_dimensions": [9, 9], "polygons": 3}}, None),
]
# Read, with a note about what is left out.
IN_PART = [
    ("icdar2015", f"{QUAD},a\n115,322,###\n"),
    ("paddle", "a.jpg\t[]\nb.jpg\t[]\na.jpg\t[]\n"),
    ("coco", {**JSON["coco"], "categories": [{"id": 1, "name": "price"}, {"id": 2, "name": "name"}]}),
    ("labelme", JSON["labelme"] | {"shapes": [shape(BOX), shape(BOX, shape_type="point"), shape(BOX, label="logo")]}),
    ("labelme", JSON["labelme"] | {"shapes": [shape(BOX, label="Total"), shape(BOX, label="5.00")]}),
    ("label_studio", [TASK, TASK | {"id": 8, "data": {"ocr": "b.jpg"}, "annotations": []}]),
    ("label_studio", [TASK | {"annotations": 2 * TASK["annotations"]}]),
    ("cvat", XML["cvat"].replace("</image>", '<points label="text" points="1,2"/></image>')),
]
WORD = Word("1", SQUARE, "a")
WRITTEN = [
    ("page_xml", {"a.jpg": Page((WORD,), (9, 9))}),
    ("yolo", {"a.jpg": Page((WORD,))}),
    ("cvat", {"a.jpg": Page((WORD,))}),
    ("cvat", {"a.jpg": Page((replace(WORD, points=SQUARE[:2]),), (9, 9))}),
    ("native", {"a.jpg": Page((WORD, WORD))}),
    ("labelme", {"a.jpg": Page(), "a.png": Page()}),
    ("labelme", {"../a.jpg": Page((), (9, 9))}),
]


def write(folder, format, content, name=None):
    text = content if isinstance(content, str | bytes) else json.dumps(content)
    if name is None:
        return write_example(folder, format, text)
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def text_of(act, *arguments):
    try:
        act(*arguments)
    except GlyphFeedError as error:
        return str(error)
    raise AssertionError(f"no error: {arguments}")


def test_wording_of_annotation_errors(tmp_path, snapshot):
    texts = [text_of(read_annotations, write(tmp_path, *entry), entry[0]) for entry in FILES]
    folder = tmp_path / "folder"
    folder.mkdir()
    texts.append(text_of(read_annotations, folder))
    texts.append(text_of(read_annotations, folder, "native"))
    for name, content in (("gt_a.txt", f"{QUAD},a\n"), ("b.txt", '1,2,9,5,"b"\n')):
        (folder / name).write_text(content)
    texts.append(text_of(read_annotations, folder))
    (folder / "b.txt").rename(folder / "a.txt")
    (folder / "a.txt").write_text(f"{QUAD},a\n")
    texts.append(text_of(read_annotations, folder))
    (folder / "a.txt").unlink()
    for name in ("a.png", "a.webp"):
        (folder / name).touch()
    texts.append(text_of(read_annotations, folder, "auto", folder))
    texts.append(text_of(read_annotations, folder / "a.json"))
    texts.append(text_of(read_annotations, folder, "auto", folder / "gone"))
    texts.append(text_of(read_annotations, folder, "auto", None, ["text"]))
    file = write(tmp_path, "coco", JSON["coco"])
    texts += [text_of(read_annotations, file, "auto", None, wrong) for wrong in (["txt"], "text")]
    words = (replace(WORD, points=SQUARE[:2]), replace(WORD, points=3), replace(WORD, text=5), replace(WORD, ignore=1))
    texts.append(text_of(to_polygons, Page(words), "val.json: a.jpg"))
    for format, pages in WRITTEN:
        texts.append(text_of(write_annotations, Annotations("x", "native", pages), tmp_path / "out", format))
    texts.append("\nNotes about what is left out:")
    texts += [note for entry in IN_PART for note in read_annotations(write(tmp_path, *entry), entry[0]).notes]
    snapshot("annotation_errors", "\n".join(texts))

"""A page of two words in every format: "Total, 5" in a box, and one below it that is to be ignored."""

import json

from PIL import Image

BOXES = [(10, 10, 90, 30), (10, 40, 60, 60)]
WITHOUT_TEXT = ("doctr", "pascal_voc", "td500", "yolo")
WITHOUT_IGNORE = ("doctr",)


def corners(box):
    left, top, right, bottom = box
    return [[left, top], [right, top], [right, bottom], [left, bottom]]


def flat(box):
    return [number for point in corners(box) for number in point]


FIRST, SECOND = BOXES
WORDS = [(corners(FIRST), "Total, 5", False), (corners(SECOND), "###", True)]


def lines(*parts):
    return "".join(f"{part}\n" for part in parts)


def quad(box):
    return dict(zip(("x1", "y1", "x2", "y2", "x3", "y3", "x4", "y4"), flat(box), strict=True))


def percent(box):
    """Of a page of 100 x 200."""
    left, top, right, bottom = box
    return {"x": left, "y": top / 2, "width": right - left, "height": (bottom - top) / 2, "rotation": 0}


def region(key, box, label, text):
    shared = {"original_width": 100, "original_height": 200, "image_rotation": 0, "id": key, "to_name": "image"}
    return [
        {**shared, "from_name": "bbox", "type": "rectangle", "value": percent(box)},
        {**shared, "from_name": "label", "type": "labels", "value": {**percent(box), "labels": [label]}},
        {**shared, "from_name": "transcription", "type": "textarea", "value": {**percent(box), "text": [text]}},
    ]


def shape(box, **more):
    left, top, right, bottom = box
    return {"label": "text", "points": [[left, top], [right, bottom]], "shape_type": "rectangle", "flags": {}, **more}


def via_region(box, **attributes):
    xs, ys = zip(*corners(box), strict=True)
    outline = {"name": "polygon", "all_points_x": list(xs), "all_points_y": list(ys)}
    return {"shape_attributes": outline, "region_attributes": attributes}


def points_of(box):
    return " ".join(f"{x},{y}" for x, y in corners(box))


JSON = {
    "native": {
        "images": {
            "a.jpg": {
                "words": {
                    "1": {"points": corners(FIRST), "transcription": "Total, 5"},
                    "2": {"points": corners(SECOND), "transcription": "###", "illegibility": True},
                }
            }
        }
    },
    "coco": {
        "images": [{"id": 1, "file_name": "a.jpg", "width": 100, "height": 200}],
        "categories": [{"id": 1, "name": "text"}],
        "annotations": [
            {"id": at, "image_id": 1, "category_id": 1, "segmentation": [flat(box)], "text": text}
            for at, (box, text) in enumerate([(FIRST, "Total, 5"), (SECOND, "###")])
        ],
    },
    "label_studio": [
        {
            "id": 7,
            "data": {"ocr": "/data/local-files/?d=a.jpg"},
            "annotations": [
                {
                    "id": 1,
                    "was_cancelled": False,
                    "result": [*region("x1", FIRST, "Text", "Total, 5"), *region("x2", SECOND, "Text", "###")],
                }
            ],
            "predictions": [],
        }
    ],
    "labelme": {
        "version": "5.4.1",
        "flags": {},
        "shapes": [shape(FIRST, description="Total, 5"), shape(SECOND, description="###", flags={"ignore": True})],
        "imagePath": "..\\images\\a.jpg",
        "imageData": None,
        "imageHeight": 200,
        "imageWidth": 100,
    },
    "via": {
        "a.jpg12345": {
            "filename": "a.jpg",
            "size": 12345,
            "regions": [
                via_region(FIRST, transcription="Total, 5"),
                via_region(SECOND, transcription="###", illegible={"yes": True}),
            ],
            "file_attributes": {},
        }
    },
    "mmocr": {
        "metainfo": {"dataset_type": "TextDetDataset", "category": [{"id": 0, "name": "text"}]},
        "data_list": [
            {
                "img_path": "a.jpg",
                "height": 200,
                "width": 100,
                "instances": [
                    {"polygon": flat(FIRST), "bbox": list(FIRST), "bbox_label": 0, "ignore": False, "text": "Total, 5"},
                    {"polygon": flat(SECOND), "bbox": list(SECOND), "bbox_label": 0, "ignore": True, "text": "###"},
                ],
            }
        ],
    },
    "lsvt": {
        "a": [
            {"transcription": "Total, 5", "points": corners(FIRST), "language": "Latin", "illegibility": False},
            {"transcription": "###", "points": corners(SECOND), "illegibility": True},
        ]
    },
    "rects": {
        "chars": [{"points": flat(FIRST), "transcription": "T", "ignore": 0}],
        "lines": [
            {"points": flat(FIRST), "transcription": "Total, 5", "ignore": 0},
            {"points": flat(SECOND), "transcription": "###", "ignore": 1},
        ],
    },
    "doctr": {"a.jpg": {"img_dimensions": [100, 200], "img_hash": "5d", "polygons": [corners(FIRST), corners(SECOND)]}},
    "funsd": {
        "form": [
            {
                "id": 0,
                "label": "question",
                "box": [10, 10, 90, 60],
                "text": "Total, 5",
                "linking": [],
                "words": [{"box": list(FIRST), "text": "Total, 5"}, {"box": list(SECOND), "text": ""}],
            }
        ]
    },
    "cord": {
        "meta": {"version": "0.2.1", "split": "train", "image_id": 0, "image_size": {"width": 100, "height": 200}},
        "valid_line": [
            {
                "words": [{"quad": quad(FIRST), "is_key": 0, "row_id": 1, "text": "Total, 5"}],
                "category": "total.total_price",
                "group_id": 3,
            }
        ],
        "roi": {},
        "repeating_symbol": [[{"quad": quad(FIRST), "text": "---"}]],
        "dontcare": [[quad(SECOND)]],
    },
    "hiertext": {
        "info": {"version": "v1"},
        "annotations": [
            {
                "image_id": "a",
                "image_width": 100,
                "image_height": 200,
                "paragraphs": [
                    {
                        "vertices": corners((10, 10, 90, 60)),
                        "legible": True,
                        "lines": [
                            {
                                "vertices": corners(FIRST),
                                "text": "Total, 5",
                                "words": [{"vertices": corners(FIRST), "text": "Total, 5", "legible": True}],
                            },
                            {"vertices": corners(SECOND), "text": "###", "legible": False, "words": []},
                        ],
                    }
                ],
            }
        ],
    },
}
XML = {
    "cvat": """<?xml version="1.0" encoding="utf-8"?>
<annotations><version>1.1</version><meta><task><labels><label><name>text</name></label></labels></task></meta>
<image id="0" name="a.jpg" width="100" height="200">
<box label="text" occluded="0" source="manual" xtl="10.00" ytl="10.00" xbr="90.00" ybr="30.00" z_order="0">
<attribute name="transcription">Total, 5</attribute><attribute name="ignore">false</attribute></box>
<polygon label="text" points="10.00,40.00;60.00,40.00;60.00,60.00;10.00,60.00" z_order="0">
<attribute name="transcription">###</attribute><attribute name="ignore">true</attribute></polygon>
</image></annotations>""",
    "page_xml": f"""<?xml version="1.0" encoding="UTF-8" standalone="yes"?>
<PcGts xmlns="http://schema.primaresearch.org/PAGE/gts/pagecontent/2019-07-15"><Metadata/>
<Page imageFilename="a.jpg" imageWidth="100" imageHeight="200">
<TextRegion id="r1"><Coords points="{points_of(FIRST)}"/>
<TextLine id="l1"><Coords points="{points_of(FIRST)}"/><Baseline points="10,28 90,28"/>
<TextEquiv><Unicode>Total, 5</Unicode></TextEquiv></TextLine></TextRegion>
<TextRegion id="r2"><Coords points="{points_of(SECOND)}"/><TextEquiv><Unicode>###</Unicode></TextEquiv></TextRegion>
</Page></PcGts>""",
    "pascal_voc": """<annotation><folder>x</folder><filename>a.jpg</filename>
<size><width>100</width><height>200</height><depth>3</depth></size>
<object><name>text</name><pose>Unspecified</pose><truncated>0</truncated><difficult>0</difficult>
<bndbox><xmin>10</xmin><ymin>10</ymin><xmax>90</xmax><ymax>30</ymax></bndbox></object>
<object><name>text</name><difficult>1</difficult>
<bndbox><xmin>10</xmin><ymin>40</ymin><xmax>60</xmax><ymax>60</ymax></bndbox></object></annotation>""",
}
XML["alto"] = """<?xml version="1.0" encoding="UTF-8"?>
<alto xmlns="http://www.loc.gov/standards/alto/ns-v4#" xmlns:xlink="http://www.w3.org/1999/xlink">
<Description><MeasurementUnit>pixel</MeasurementUnit>
<sourceImageInformation><fileName>a.jpg</fileName></sourceImageInformation></Description>
<Tags><OtherTag ID="T1" LABEL="illegible" DESCRIPTION="line type illegible"/></Tags>
<Layout><Page ID="p" PHYSICAL_IMG_NR="1" WIDTH="100" HEIGHT="200"><PrintSpace>
<TextBlock ID="b"><TextLine ID="l1" HPOS="10" VPOS="10" WIDTH="80" HEIGHT="20">
<String ID="s1" CONTENT="Total, 5" HPOS="10" VPOS="10" WIDTH="80" HEIGHT="20" WC="0.9"/><SP/></TextLine>
<TextLine ID="l2" TAGREFS="T1" HPOS="10" VPOS="40" WIDTH="50" HEIGHT="20">
<String ID="s2" CONTENT="###" HPOS="10" VPOS="40" WIDTH="50" HEIGHT="20"/></TextLine>
</TextBlock></PrintSpace></Page></Layout></alto>"""
_TEXTS = [(FIRST, "Total, 5"), (SECOND, "###")]
_ENTRIES = [{"transcription": text, "points": corners(box)} for box, text in _TEXTS]
_BOXED = [
    {"box": flat(FIRST), "text": "Total, 5", "label": 25},
    {"box": flat(SECOND), "text": "###", "label": 0},
]
TEXT = {
    "icdar2013": lines(*(", ".join(map(str, box)) + f', "{text}"' for box, text in _TEXTS)),
    "icdar2015": lines(*(",".join(map(str, flat(box))) + f",{text}" for box, text in _TEXTS)),
    "ctw1500": lines(*(",".join(map(str, flat(box))) + f",####{text}" for box, text in _TEXTS)),
    "total_text": lines(
        *(
            f"x: [[{' '.join(map(str, flat(box)[0::2]))}]], y: [[{' '.join(map(str, flat(box)[1::2]))}]], "
            f"ornt: [u'h'], transcriptions: [u'{text}']"
            for box, text in _TEXTS
        )
    ),
    "yolo": lines("0 0.5 0.1 0.8 0.1", "1 0.35 0.25 0.5 0.1"),
    "td500": lines("0 0 10 10 80 20 0", "1 1 10 40 50 20 0.0"),
    "paddle": f"./a.jpg\t{json.dumps(_ENTRIES)}\n",
    "wildreceipt": json.dumps({"file_name": "a.jpg", "height": 200, "width": 100, "annotations": _BOXED}) + "\n",
}
SUFFIXES = {"td500": ".gt", **dict.fromkeys(JSON, ".json"), **dict.fromkeys(XML, ".xml")}
CONTENTS = {**{format: json.dumps(root) for format, root in JSON.items()}, **XML, **TEXT}


def write_example(folder, format, content=None):
    """The file of a format, in a folder of its own."""
    path = folder / format / f"a{SUFFIXES.get(format, '.txt')}"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(CONTENTS[format] if content is None else content)
    if format == "yolo":
        (path.parent / "data.yaml").write_text("names: {0: text, 1: ignore}\n")
    return path


def write_page(folder):
    """The image of the page, for formats that count in shares of it."""
    folder.mkdir(parents=True, exist_ok=True)
    Image.new("L", (100, 200)).save(folder / "a.jpg")
    return folder


def expected(format):
    """Points, text and ignore flag of the words, as far as the format holds them."""
    found = []
    for points, text, ignore in WORDS:
        is_lost = format in WITHOUT_TEXT or (format in ("funsd", "cord") and ignore)
        found.append((points, None if is_lost else text, ignore and format not in WITHOUT_IGNORE))
    return found

"""Run a model that `glyphfeed export` wrote, without GlyphFeed: boxes of one image as lines of x, y.

python examples/exported_model.py exported/model.onnx page.jpg
"""

import json
import sys

import cv2
import numpy as np
import onnxruntime

session = onnxruntime.InferenceSession(sys.argv[1], providers=["CPUExecutionProvider"])
settings = json.loads(session.get_modelmeta().custom_metadata_map["glyphfeed"])
size, thresh = settings["letterbox"]["size"], settings["boxes"].get("thresh", 0.3)
page = cv2.cvtColor(cv2.imread(sys.argv[2]), cv2.COLOR_BGR2RGB)

# The longest side to `size`, the rest filled up: the model takes sides that are multiples of 32.
scale = size / max(page.shape[:2])
small = cv2.resize(page, None, fx=scale, fy=scale)
height, width = (-(-side // 32) * 32 for side in np.maximum(small.shape[:2], 64))
canvas = np.zeros((1, height, width, 3), dtype=np.uint8)
canvas[0, : small.shape[0], : small.shape[1]] = small
(prob_map,) = session.run(None, {"pages": canvas})[0]

outlines, _ = cv2.findContours((prob_map > thresh).astype(np.uint8), cv2.RETR_EXTERNAL, cv2.CHAIN_APPROX_SIMPLE)
for outline in outlines:
    centre, (w, h), angle = cv2.minAreaRect(outline)
    grow = 1.5 * w * h / max(w + h, 1)  # DBNet's boxes are smaller than the text: area * 1.5 / perimeter on each side.
    print(cv2.boxPoints((centre, (w + grow, h + grow), angle)) / scale)

"""Taking a detector out of the door: `Detector` finds text in anything, `ocr export` writes it for other runtimes.

path, bytes, array, PDF -> decode -> letterbox -> runtime (torch, ONNX Runtime, OpenVINO, TensorRT) -> boxes
"""

"""Deployment: `Detector` finds text in anything, `glyphfeed export` writes a model for other runtimes.

path, bytes, array, PDF -> decode -> letterbox -> runtime (torch, ONNX Runtime, OpenVINO, TensorRT) -> boxes
"""

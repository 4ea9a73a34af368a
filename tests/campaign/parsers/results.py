"""Results and logs that commands read again: advise, train and predict."""

from __future__ import annotations

import json
from pathlib import Path

from ocr.advisor.report.result_file import read_result
from ocr.advisor.report.run_folder import read_run
from ocr.deploy.prediction_log import NAME, PredictionLog
from ocr.errors import GlyphFeedError
from tests.campaign.cases import Parser, refused, register

FOUND_WITH = {"checkpoint": "abc", "size": 640}
METRICS = b"epoch,step,train/loss,val/hmean,seconds/data_wait\n0,3,1.5,,\n0,3,,0.5,0.1\n1,7,0.9,,\n1,7,,0.6,0.1\n"
RUN = {
    "csv/version_0/metrics.csv": METRICS,
    ".hydra/config.yaml": b"trainer:\n  max_epochs: 3\ndataset_base_path: ${oc.env:HOME}\nsizes: [1, 2]\n",
    ".hydra/overrides.yaml": b"- model=lite\n- trainer.max_epochs=3\n",
    "worst_pages.json": b'[{"page": "a.jpg", "hmean": 0.5, "missed": 3}]',
}


def result_bytes() -> bytes:
    return json.dumps({"kind": "profile", "machine": {"cores": 2}, "data": {"pages": 4}, "stages": []}).encode()


def parse_result(data: bytes, folder: Path) -> bool:
    file = folder / "a.json"
    file.write_bytes(data)
    try:
        read_result(file)
    except GlyphFeedError as error:
        return refused(error, file.name)
    return True


def parse_run(name: str, data: bytes, folder: Path) -> bool:
    for each, content in RUN.items():
        path = folder / "run" / each
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data if each == name else content)
    try:
        read_run(folder / "run")
    except GlyphFeedError as error:
        return refused(error, str(folder / "run"))
    return True


def log_bytes() -> bytes:
    pages = [{"name": f"{at}.jpg", "stamp": [1, at], "words": {"0001": {"points": [[1, 2]]}}} for at in range(3)]
    return b"".join(json.dumps(line).encode() + b"\n" for line in (FOUND_WITH, *pages))


def parse_log(data: bytes, folder: Path) -> bool:
    (folder / NAME).write_bytes(data)
    try:
        with PredictionLog(folder, FOUND_WITH) as log:
            for name, _ in log.pages():
                log.has(name, [1, 1])
    except GlyphFeedError as error:
        return refused(error, str(folder))
    return True


register(
    Parser(
        "result-file",
        "results for `ocr report`",
        lambda: [result_bytes()],
        parse_result,
        ("ocr/advisor/report/result_file",),
        "json",
        share=12,
    )
)
for _name, _kind in zip(RUN, ("text", "text", "text", "json"), strict=True):
    register(
        Parser(
            f"run-{Path(_name).stem.replace('_', '-')}",
            f"the folder of a run, {Path(_name).name}",
            lambda name=_name: [RUN[name]],
            lambda data, folder, name=_name: parse_run(name, data, folder),
            ("ocr/advisor/report/run_folder",),
            _kind,
            share=8,
        )
    )
register(
    Parser(
        "prediction-log",
        "the log of predictions",
        lambda: [log_bytes()],
        parse_log,
        ("ocr/deploy/prediction_log",),
        "text",
        share=12,
    )
)

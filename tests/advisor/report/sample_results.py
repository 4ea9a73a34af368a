"""Results as `ocr profile`, `ocr bench` and `ocr advise` write them: large ones with awkward names, and bare ones."""

from typing import Any

from ocr.advisor.report.result_file import result

PLACE = '/data/receipts <2024> & "other" documents/of the archive'
AWKWARD = '<script>alert("stage & co")</script>'
MACHINE = {
    "processor": "AMD EPYC 7B13 64-Core Processor",
    "cores": 2,
    "memory_bytes": 33_555_000_000,
    "free_memory_bytes": 21_400_000_000,
    "free_disk_bytes": 182_000_000_000,
    "device": "cpu",
    "system": "Linux 6.8.0, Python 3.11.7",
    "libraries": {"torch": "2.15.0", "numpy": "2.4.6", "numba": "0.68.1", "simplejpeg": "not installed"},
}
DATA = {"place": PLACE, "split": "train", "pages": 350}
# name, label, kind, mean ms
STAGES = [
    ("source", "FolderSource('images/train', annotation_format='auto')", "source", 0.31),
    ("decode", "Decode(scaled='auto', max_pixels=300000000)", "fixed", 8.42),
    ("letterbox", "Letterbox(size=640)", "fixed", 1.37),
    ("cache read", "Cache(prefix)", "fixed", 0.0),
    ("TextAwareCrop", "TextAwareCrop(scale=(0.5, 1.0), tries=10)", "random", 0.74),
    ("RandomFlip", "RandomFlip(probability=0.5)", "random", 0.0042),
    ("RandomRotate", "RandomRotate(degrees=10)", "random", 0.93),
    ("RandomScale", "RandomScale(low=0.5, high=2.0)", "random", 0.55),
    ("ColourJitter", "ColourJitter(brightness=0.3, contrast=0.3, saturation=0.2)", "random", 1.88),
    ("RandomBlur", "RandomBlur(probability=0.2, largest_sigma=1.5)", "random", 0.21),
    ("JpegNoise", "JpegNoise(probability=0.2, lowest_quality=40)", "random", 1.02),
    (AWKWARD, f"Foreign({AWKWARD})", "random", 0.4),
    ("albumentations.RandomBrightnessContrastAndAVeryLongNameOfATransform", "A.Long(p=0.5)", "random", 0.66),
    ("targets", "Targets(shrink_ratio=0.4, thresh_min=0.3, thresh_max=0.7)", "targets", 1.91),
    ("batch", "Batch(16)", "batch", 0.22),
    ("device", "Normalize()", "device", 0.48),
    ("forward and backward", "TextDetector(lite)", "model", 31.7),
    ("boxes", "BoxesFromMap()", "boxes", 2.31),
]


def _stage(name: str, label: str, kind: str, mean_ms: float, total_ms: float) -> dict[str, Any]:
    in_data = kind not in ("model", "boxes")
    return {
        "name": name,
        "label": label,
        "kind": kind,
        "calls": 350,
        "mean_ms": mean_ms,
        "std_ms": mean_ms * 0.4,
        "min_ms": mean_ms * 0.2,
        "max_ms": mean_ms * 6,
        "share": mean_ms / total_ms if in_data else None,
        "cpu_ms": mean_ms * 0.97,
        "queued_ms": mean_ms * 0.02,
        "bytes_out": 1_228_800 if mean_ms else 0,
        "page_faults": round(mean_ms * 40),
    }


def profile() -> dict[str, Any]:
    """18 stages over five sizes."""
    total_ms = sum(mean for *_, kind, mean in STAGES if kind not in ("model", "boxes"))
    sizes = []
    for size in (320, 480, 640, 960, 1280):
        stages = {name: mean * (0.4 + 0.6 * (size / 640) ** 2) for name, _, kind, mean in STAGES if kind != "model"}
        sizes.append({"size": size, "total_ms": sum(stages.values()), "stages": stages})
    return result(
        "profile",
        f"ocr profile 'dataset_base_path={PLACE}' --json profile.json",
        MACHINE,
        DATA,
        stages=[_stage(*stage, total_ms) for stage in STAGES],
        whole={
            "with polygons": {"mean_ms": 17.9, "std_ms": 6.2, "min_ms": 5.1, "max_ms": 96.0},
            "without polygons": {"mean_ms": 14.8, "std_ms": 5.9, "min_ms": 4.4, "max_ms": 91.0},
        },
        sizes=sizes,
        slowest="decode",
        sentence="decode takes 47 % of the data path: 8.4 of 17.9 ms a page.",
    )


def _configuration(name: str, overrides: list[str], first_s: float, median_s: float, **rest: Any) -> dict[str, Any]:
    later_s = [median_s * factor for factor in (0.97, 1.0, 1.08)]
    base = {"split": "val", "workers": 2, "memory_bytes": 410_000_000, "skipped": None}
    figures = {"first_s": first_s, "later_s": later_s, "median_s": median_s, "spread": 0.11}
    return {"name": name, "overrides": overrides} | base | figures | {"pages_per_s": 54 / median_s} | rest


def bench() -> dict[str, Any]:
    """Twelve configurations, one of them without a library."""
    none = dict.fromkeys(("first_s", "median_s", "spread", "pages_per_s", "memory_bytes")) | {"later_s": []}
    configurations = [
        _configuration("disk", ["data.cache=off"], 1.70, 1.66),
        _configuration(".npz maps", ["data.cache=off", "use_stored_maps=true"], 1.31, 1.25),
        _configuration("preload_maps", ["datasets.val_dataset.preload_maps=true"], 1.62, 1.22),
        _configuration("preload_images", ["datasets.val_dataset.preload_images=true"], 1.91, 0.72),
        _configuration("prenormalize", ["datasets.val_dataset.prenormalize_images=true"], 2.14, 0.31),
        _configuration("tensor cache", ["datasets.val_dataset.cache_transformed_tensors=true"], 1.75, 0.0022),
        _configuration("prefix cache", ["data.cache=prefix"], 1.73, 0.385),
        _configuration("WebDataset, raw", ["data=webdataset"], 1.66, 1.61),
        _configuration("WebDataset, ready", ["data=webdataset"], 0.44, 0.42, memory_bytes=None),
        _configuration("workers", ["num_workers=0"], 2.9, 2.8, workers=0),
        _configuration("workers", ["num_workers=4"], 1.8, 1.7, workers=4, later_s=[1.7]),
        _configuration("DALI", ["use_dali=true"], 1, 1)
        | none
        | {"skipped": "nvidia-dali is not installed: pip install 'glyphfeed[dali]' & try <again>"},
    ]
    command = f"ocr bench 'dataset_base_path={PLACE}' --json bench.json"
    data = DATA | {"split": "val", "pages": 54}
    return result("bench", command, MACHINE, data, configurations=configurations, baseline="disk")


TODAY_S = 6.74


def _remedy(name: str, overrides: list[str], epoch_s: float, reason: str, **rest: Any) -> dict[str, Any]:
    costs = {"first_epoch_s": epoch_s, "ram_bytes": 0, "disk_bytes": 0, "payback_epochs": 0, "combined": False}
    speed = {"samples_per_s": 350 / epoch_s, "epoch_s": epoch_s, "gain": TODAY_S / epoch_s, "reason": reason}
    return {"name": name, "overrides": overrides} | speed | costs | rest


def remedies() -> list[dict[str, Any]]:
    """14, from the best to one that does harm."""
    both = {"ram_bytes": 430_080_000, "disk_bytes": 430_080_000}
    bf16 = "trainer.precision=bf16-mixed"
    shards = {
        "command": "ocr convert DIR shards --ready",
        "first_epoch_s": 21.0,
        "disk_bytes": 1_966_080_000,
        "payback_epochs": 3.5,
    }
    return [
        _remedy(
            "prefix cache + threads + bf16 + uint8 to the device",
            ["data.cache=prefix", "engine=threads", bf16],
            2.31,
            "Pages are decoded and letterboxed once, then read from memory; the rest fits beside the model.",
            **both,
            first_epoch_s=6.9,
            payback_epochs=0.4,
            combined=True,
        ),
        _remedy(
            "prefix cache",
            ["data.cache=prefix"],
            3.12,
            "The fixed stages are 73 % of the work, and are done once.",
            **both,
            payback_epochs=1,
        ),
        _remedy(
            "ready shards", ["data=webdataset"], 3.4, "Shards hold letterboxed pages; writing takes time.", **shards
        ),
        _remedy("image cache", ["preload_images=true"], 4.9, "Decoding is done once.", ram_bytes=6_451_200_000),
        _remedy("scaled decode", ["decode.scaled=auto"], 5.2, "JPEG pages are decoded at the scale they are needed."),
        _remedy("4 workers", ["num_workers=4"], 6.6, "Only 2 cores: more workers take turns.", ram_bytes=210_000_000),
        _remedy("processes instead of threads", ["engine=processes"], 6.7, "No stage holds the lock for long."),
        _remedy("uint8 to the device", ["normalize=device"], 6.7, "It is so already."),
        _remedy("stored maps", ["use_stored_maps=true"], 6.72, "Targets are 10 % of the work.", payback_epochs=12.0),
        _remedy("tensor cache", ["data.cache=batch"], 6.74, "RandomFlip is random.", payback_epochs=None),
        _remedy("raw shards", ["data=webdataset"], 6.74, "The disk is not the bottleneck.", payback_epochs=None),
        _remedy("bf16", [bf16], 6.74, "The model waits: its speed is no help.", payback_epochs=None),
        _remedy("DALI", ["use_dali=true"], 6.8, "There is no GPU to decode on.", payback_epochs=None),
        _remedy(AWKWARD, ['note="a & b < c"'], 7.4, "A & B < C.", payback_epochs=None),
    ]


MEASURED = {
    "stages": [
        {"name": name, "cpu_ms": mean, "bytes_out": 1_228_800, "serial": kind in ("batch", "device")}
        for name, _, kind, mean in STAGES
        if kind not in ("model", "boxes")
    ],
    "step_ms": 120.4,
    "batch_size": 16,
    "disk_bytes_per_s": 1.2e9,
    "copy_bytes_per_s": 8.4e9,
    "cores": 2,
    "workers": 2,
}


def timeline(steps: int = 22) -> list[dict[str, Any]]:
    """Wait, compute, wait, ... from a clock that does not start at zero, of one thread, as older versions wrote it."""
    spans, now = [], 100.0
    for step in range(steps):
        for what, seconds in (("wait", 0.9 if step == 0 else 0.186), ("compute", 0.1204)):
            spans.append({"what": what, "start_s": now, "end_s": now + seconds})
            now += seconds
    return spans


def threads(steps: int = 12) -> list[dict[str, Any]]:
    """A model that waits for two workers, one of which runs a stage with an awkward name."""
    spans = []
    for step in range(steps):
        for what, kind, start, end in (("wait", "wait", 0.0, 0.25), ("step", "model", 0.25, 0.4)):
            spans.append({"what": what, "kind": kind, "thread": "model", "start_s": start, "end_s": end})
        for worker in ("worker 1", "worker 2"):
            parts = [("decode", "fixed", 0.0, 0.2), (AWKWARD, "random", 0.2, 0.3), ("targets", "targets", 0.3, 0.32)]
            for what, kind, start, end in parts:
                spans.append({"what": what, "kind": kind, "thread": worker, "start_s": start, "end_s": end})
        for span in spans[-8:]:
            span["start_s"] += 0.4 * step
            span["end_s"] += 0.4 * step
    return spans


def advice() -> dict[str, Any]:
    """14 remedies, seven of them checked."""
    ranked = remedies()
    errors = (0.04, -0.07, 0.12, -0.02, 0.0, 0.14, -0.11)
    return result(
        "advice",
        f"ocr advise 'dataset_base_path={PLACE}' --verify --json advice.json",
        MACHINE,
        DATA,
        measured=MEASURED,
        present={
            "name": "present",
            "samples_per_s": 51.9,
            "epoch_s": TODAY_S,
            "bottleneck": "decode",
            "sentence": "decode is the bottleneck: the model waits for data 61 % of the time.",
            "wait_share": 0.61,
        },
        remedies=ranked,
        verified=[
            {"name": r["name"], "predicted_s": r["epoch_s"], "measured_s": r["epoch_s"] / (1 + error), "error": error}
            for r, error in zip(ranked, errors, strict=False)
        ],
        mean_error=0.071,
        timeline=threads(),
        memory=[{"at_s": 0.2 * at, "bytes": 1_200_000_000 + 40_000_000 * at} for at in range(24)],
        cache=[
            {"split": f"{PLACE}/images/train", "bytes": 430_080_000, "covers": 1.0, "hits": 700, "misses": 350},
            {"split": f"{PLACE}/images/val", "bytes": 31_000_000, "covers": 0.468, "hits": 0, "misses": 29},
        ],
    )


def bare(kind: str) -> dict[str, Any]:
    """As little as the head allows, and nulls where figures should be."""
    figures: dict[str, Any] = {
        "profile": {"stages": [{"name": "decode", "mean_ms": None}], "whole": {}, "sizes": [], "slowest": "decode"},
        "bench": {"configurations": [], "baseline": None},
        "advice": {"present": {"bottleneck": "model"}, "remedies": [], "verified": [], "timeline": []},
    }[kind]
    return result(kind, "", {}, {}, **figures)

"""DALI on the CPU (https://docs.nvidia.com/deeplearning/dali): it decodes and resizes; maps are drawn by threads."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from nvidia.dali import fn, pipeline_def, types
from nvidia.dali.plugin.base_iterator import LastBatchPolicy
from nvidia.dali.plugin.pytorch import DALIGenericIterator

from benchmarks.peers.common import Course, FinishedInThreads, annotated_pages

ABOUT = {"dali": {"title": "DALI on the CPU", "reads": "image files", "packages": ("nvidia-dali-cuda130",)}}
READER = "pages"


@pipeline_def(enable_checkpointing=True)
def letterboxed(course: Course, training: bool) -> tuple[Any, Any]:
    files = [page.path for page in annotated_pages(course)]
    encoded, number = fn.readers.file(
        files=files, labels=list(range(len(files))), name=READER, shuffle_after_epoch=training, pad_last_batch=False
    )
    image = fn.decoders.image(encoded, device="cpu", output_type=types.RGB)
    image = fn.resize(image, size=(course.size, course.size), mode="not_larger", antialias=False)
    # An odd margin: the smaller half is on the left and at the top, as in the letterbox of the others.
    padded = {"out_of_bounds_policy": "pad", "fill_values": 0, "rounding": "truncate"}
    return fn.crop(image, crop=(course.size, course.size), **padded), number


class Pixelwise:
    """Pixels and numbers of pages, batch by batch."""

    def __init__(self, course: Course, training: bool, checkpoint: Any = None) -> None:
        settings = {"batch_size": course.batch_size, "num_threads": max(1, course.workers), "device_id": None}
        settings |= {"prefetch_queue_depth": 2} | ({"checkpoint": checkpoint} if checkpoint else {})
        outputs, more = ["image", "number"], {"last_batch_policy": LastBatchPolicy.PARTIAL, "auto_reset": True}
        pipeline = letterboxed(course, training, **settings)
        self.iterator = DALIGenericIterator([pipeline], outputs, reader_name=READER, **more)

    def __iter__(self) -> Iterator[tuple[Any, Any]]:
        return ((batch["image"], batch["number"]) for (batch,) in self.iterator)


class Epochs(FinishedInThreads):
    def __init__(self, course: Course, training: bool) -> None:
        self.details = course, training
        super().__init__(course, training, Pixelwise(course, training))

    def state_dict(self) -> dict[str, Any]:
        return {"checkpoint": self.batches.iterator.checkpoints()[0]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.batches = Pixelwise(*self.details, state["checkpoint"])


open_loader = Epochs

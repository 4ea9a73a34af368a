"""Where a resumed training goes on: after the batches that were trained, not those that were fetched."""

from __future__ import annotations

from typing import Any


def save_trained_batches(checkpoint: dict[str, Any]) -> None:
    """Correct the position in Lightning's checkpoint, which counts the batches that were fetched.

    One batch of a stream is fetched ahead, to know when it ends, and a step that is interrupted leaves no trace in the
    weights.
    """
    saved = checkpoint["loops"]["fit_loop"]
    epochs, batches = saved["epoch_progress"]["current"], saved["epoch_loop.batch_progress"]["current"]
    is_over = epochs["processed"] == epochs["ready"]
    trained = {"epoch": epochs["processed"], "batches": 0 if is_over else batches["processed"]}
    for state in saved["state_dict"].get("combined_loader", []):
        if state.keys() >= trained.keys():
            state.update(trained)
    if is_over:
        _complete_epoch(saved)


def _complete_epoch(saved: dict[str, Any]) -> None:
    """With `max_steps`, Lightning resumes an epoch at its end, counts it twice, and so skips the next one."""
    for progress in saved["epoch_progress"].values():
        progress["completed"] = progress["processed"]
    batches = saved["epoch_loop.batch_progress"]
    batches["current"] = dict.fromkeys(batches["current"], 0)
    batches["is_last_batch"] = False

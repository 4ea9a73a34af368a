"""Where a resumed training continues: after the last step of the optimizer, whatever was fetched since."""

from __future__ import annotations

from typing import Any


def save_trained_batches(checkpoint: dict[str, Any], accumulated: int, buffers_at_step: dict[str, Any]) -> None:
    """Correct Lightning's checkpoint, which counts the batches that were fetched.

    One batch of a stream is fetched ahead, to know when it ends. A step that is interrupted leaves no trace in the
    weights, and neither do batches whose gradients wait for a step of `accumulated` batches; the running averages of
    both are undone.
    """
    saved = checkpoint["loops"]["fit_loop"]
    epochs, batches = saved["epoch_progress"]["current"], saved["epoch_loop.batch_progress"]["current"]
    is_over = epochs["processed"] == epochs["ready"]
    has_ended = saved["epoch_loop.batch_progress"]["is_last_batch"] and batches["processed"] == batches["ready"]
    waiting = 0 if is_over or has_ended else batches["processed"] % accumulated
    trained = {"epoch": epochs["processed"], "batches": 0 if is_over else batches["processed"] - waiting}
    for state in saved["state_dict"].get("combined_loader", []):
        if state.keys() >= trained.keys():
            state.update(trained)
    if is_over:
        _complete_epoch(saved)
    elif waiting or batches["processed"] < batches["started"]:
        weights = checkpoint.get("current_model_state", checkpoint["state_dict"])  # The other one is an average.
        weights.update({name: buffer for name, buffer in buffers_at_step.items() if name in weights})
        if waiting:
            _return_to_last_step(saved, waiting)


def _return_to_last_step(saved: dict[str, Any], waiting: int) -> None:
    """As if the batches since then had never been fetched."""
    progress = saved["epoch_loop.batch_progress"]
    for counts in (progress["current"], progress["total"]):
        counts.update(dict.fromkeys(counts, counts["processed"] - waiting))
    progress["is_last_batch"] = False
    # Lightning counts the last step of a checkpoint when it resumes: it saves before it counts.
    saved["epoch_loop.state_dict"]["_batches_that_stepped"] -= 1


def _complete_epoch(saved: dict[str, Any]) -> None:
    """With `max_steps`, Lightning resumes an epoch at its end, counts it twice, and so skips the next one."""
    for progress in saved["epoch_progress"].values():
        progress["completed"] = progress["processed"]
    batches = saved["epoch_loop.batch_progress"]
    batches["current"] = dict.fromkeys(batches["current"], 0)
    batches["is_last_batch"] = False

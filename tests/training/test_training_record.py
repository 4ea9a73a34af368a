"""A checkpoint names where its weights come from."""

from ocr.models.settings import CHECKPOINT_KEY, DetectorSettings, Provenance
from ocr.training.training_record import TrainingRecord


def test_minutes_add_up_over_resumed_runs():
    settings = DetectorSettings({}, provenance=Provenance(seed=3))
    record = TrainingRecord()
    assert record.complete(settings, 0).provenance.minutes is None
    stored = DetectorSettings({}, provenance=Provenance(minutes=50.0)).to_dict()
    record.resume({CHECKPOINT_KEY: stored})
    record.start({"pages": 4})
    origin = record.complete(settings, 7).provenance
    assert 50 <= origin.minutes < 51
    assert (origin.steps, origin.data, origin.seed) == (7, {"pages": 4}, 3)


def test_a_checkpoint_from_before_there_was_a_record_is_resumed():
    record = TrainingRecord()
    record.resume({})
    record.start({})
    assert record.complete(DetectorSettings({}), 1).provenance.minutes < 1

"""The average of the weights."""

import lightning
import pytest
from rejection import rejects
from torch import nn
from torch.optim.swa_utils import AveragedModel

from ocr.errors import ConfigError
from ocr.training.callbacks.ema import WarmEMA, update_average


def averages(values: list[float], decay: float, updates: int = 0) -> list[float]:
    """The average weight after each of the values that the weight takes."""
    model = nn.BatchNorm1d(1)
    average = AveragedModel(model)
    average.n_averaged.fill_(updates)
    seen = []
    for value in values:
        for tensor in (*model.parameters(), *model.buffers()):
            tensor.detach().fill_(value)
        update_average(average, model, decay)
        seen.append(float(average.module.weight.detach()))
        assert float(average.module.running_var) == seen[-1]
        assert int(average.module.num_batches_tracked) == int(value)
    return seen


def test_the_first_step_replaces_the_random_start():
    assert averages([7.0], 0.999) == [7.0]


def test_the_average_of_the_next_steps_is_warm():
    first, second, third = averages([1.0, 2.0, 3.0], 0.999)
    assert second == pytest.approx(first * 2 / 11 + 2 * 9 / 11)
    assert third == pytest.approx(second * 3 / 12 + 3 * 9 / 12)


def test_early_steps_are_soon_forgotten():
    assert averages([100.0, *[1.0] * 20], 0.999)[-1] < 1.01


def test_later_the_average_follows_slowly():
    one, zero = averages([1.0, 0.0], 0.99, updates=10**6)
    assert one == pytest.approx(0.01 * 1 + 0.99 * 1)
    assert zero == pytest.approx(0.99)


class OneLayer(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.BatchNorm1d(1)


def test_a_checkpoint_that_is_written_in_validation_has_the_average_as_its_weights():
    module, ema = OneLayer(), WarmEMA()
    trainer = lightning.Trainer(logger=False, accelerator="cpu", callbacks=[ema])
    ema.setup(trainer, module, "fit")
    module.layer.weight.detach().fill_(7.0)

    def saved() -> list[float]:
        checkpoint = {"state_dict": module.state_dict()}
        ema.on_save_checkpoint(trainer, module, checkpoint)
        return [float(checkpoint[part]["layer.weight"]) for part in ("state_dict", "current_model_state")]

    assert saved() == [1.0, 7.0]
    ema.on_validation_epoch_start(trainer, module)
    assert float(module.layer.weight.detach()) == 1.0
    assert saved() == [1.0, 7.0]
    ema.on_validation_epoch_end(trainer, module)
    assert saved() == [1.0, 7.0]


@pytest.mark.parametrize("decay", [-0.1, 1.0])
def test_a_decay_that_keeps_or_drops_everything_is_refused(decay):
    with rejects(ConfigError, setting="callbacks.ema.decay", value=decay):
        WarmEMA(decay)

"""The detector as a whole: shapes, first prediction, gradients, precision, checkpoints, presets."""

from pathlib import Path

import pytest
import torch
from hydra import compose, initialize_config_dir
from hydra.utils import instantiate
from omegaconf import DictConfig
from rejection import rejects

import ocr.models
from ocr.errors import ConfigError
from ocr.models import DBLoss, TextDetector
from ocr.models.weights import describe_misfit

LITE = "mobilenetv3_small_050"
TINY = "test_resnet"


def text_batch(side: int = 64, pages: int = 2) -> dict[str, torch.Tensor]:
    """Pages with one dark bar each, and the maps that belong to it."""
    prob = torch.zeros(pages, 1, side, side)
    prob[:, :, 24:32, 12:52] = 1
    band = torch.zeros(pages, 1, side, side, dtype=torch.bool)
    band[:, :, 20:36, 8:56] = True
    images = torch.randn(pages, 3, side, side) * 0.1 + 1
    images[:, :, 22:34, 10:54] -= 2
    everywhere = torch.ones_like(band)
    thresh = torch.where(band & (prob == 0), 0.6, 0.3)
    return {
        "images": images,
        "prob_maps": prob,
        "thresh_maps": thresh,
        "prob_masks": everywhere,
        "thresh_masks": band,
    }


@pytest.mark.parametrize(
    "encoder",
    [
        "resnet18",
        pytest.param("resnet50", marks=pytest.mark.slow),
        LITE,
        "hgnetv2_b0",
        "convnext_atto",
        "tf_efficientnet_lite0",
        pytest.param("vgg11_bn", marks=pytest.mark.slow),
        "regnetx_002",
    ],
)
def test_an_encoder_of_each_family_gives_maps_of_the_size_of_the_page(encoder):
    detector = TextDetector(encoder, channels=16)
    prediction = detector(torch.randn(2, 3, 64, 64))
    assert prediction.prob_logits.shape == prediction.thresh.shape == prediction.binary.shape == (2, 1, 64, 64)


@pytest.mark.parametrize("scale_fusion", [False, True])
@pytest.mark.parametrize("decoder", ["fpn", "pan", "unet"])
def test_every_parameter_of_every_decoder_learns(decoder, scale_fusion):
    if decoder == "unet" and scale_fusion:
        with rejects(ConfigError, setting="scale_fusion", value=True):
            TextDetector(LITE, decoder, channels=16, scale_fusion=True)
        return
    detector = TextDetector(LITE, decoder, channels=16, scale_fusion=scale_fusion)
    batch = text_batch()
    loss, _ = DBLoss()(detector(batch["images"]), batch)
    loss.backward()
    without = [name for name, value in detector.named_parameters() if value.grad is None or not value.grad.any()]
    assert without == []


@pytest.mark.parametrize(("height", "width"), [(33, 64), (50, 97), (1, 1), (64, 31)])
def test_pages_of_any_size_are_taken(height, width):
    detector = TextDetector(LITE, channels=16).eval()
    assert detector(torch.randn(1, 3, height, width)).prob_map.shape == (1, 1, height, width)


def test_padding_on_the_right_and_below_does_not_move_the_maps():
    detector = TextDetector(LITE, channels=16).eval()
    page = torch.randn(1, 3, 64, 64)
    page[..., 50:, :] = 0
    page[..., :, 40:] = 0
    torch.testing.assert_close(detector(page[..., :50, :40]).prob_map, detector(page).prob_map[..., :50, :40])


@pytest.mark.parametrize("encoder", ["resnet18", LITE])
def test_the_first_prediction_is_a_page_with_hardly_any_text(encoder):
    detector = TextDetector(encoder, channels=64)
    prediction = detector(torch.randn(2, 3, 128, 128))
    assert 0.005 < float(prediction.prob_map.mean().detach()) < 0.02
    assert 0.3 < float(prediction.thresh.mean().detach()) < 0.5


def test_the_threshold_branch_is_not_computed_in_evaluation_unless_asked_for():
    detector = TextDetector(LITE, channels=16).eval()
    calls = []
    detector.head.thresh.register_forward_hook(lambda *_: calls.append(1))
    prediction = detector(torch.zeros(1, 3, 32, 32))
    assert (prediction.thresh, prediction.binary, calls) == (None, None, [])
    assert detector(torch.zeros(1, 3, 32, 32), with_threshold=True).binary.shape == (1, 1, 32, 32)


def test_binarisation_is_float32_under_bfloat16_and_the_loss_is_close_to_that_of_float32():
    detector, batch, criterion = TextDetector(LITE, channels=16), text_batch(), DBLoss()
    expected, _ = criterion(detector(batch["images"]), batch)
    with torch.autocast("cpu", torch.bfloat16):
        prediction = detector(batch["images"])
        loss, parts = criterion(prediction, batch)
    assert prediction.prob_logits.dtype == torch.bfloat16
    assert {prediction.thresh.dtype, prediction.binary.dtype, prediction.prob_map.dtype} == {torch.float32}
    assert {loss.dtype, *(part.dtype for part in parts.values())} == {torch.float32}
    assert float(loss.detach()) == pytest.approx(float(expected.detach()), rel=0.02)


@pytest.mark.parametrize("precision", [torch.float32, torch.bfloat16])
def test_a_few_dozen_steps_learn_one_batch(precision):
    detector, batch, criterion = TextDetector(TINY, channels=16), text_batch(), DBLoss()
    optimizer = torch.optim.AdamW(detector.parameters(), lr=5e-3)
    losses = []
    for _ in range(40):
        with torch.autocast("cpu", precision, enabled=precision is torch.bfloat16):
            loss, _ = criterion(detector(batch["images"]), batch)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < 0.5 * losses[0], losses


@pytest.mark.parametrize("channels_last", [True, False])
def test_the_memory_order_does_not_change_the_maps(channels_last):
    detector = TextDetector(LITE, channels=16, channels_last=channels_last).eval()
    reference = TextDetector(LITE, channels=16).eval()
    reference.load_state_dict(detector.state_dict())
    images = torch.randn(1, 3, 64, 64)
    torch.testing.assert_close(detector(images).prob_map, reference(images).prob_map)
    weight = detector.decoder.smooth[0][0].weight
    assert weight.is_contiguous(memory_format=torch.channels_last) == channels_last


def test_forward_is_one_graph_for_the_compiler():
    detector = TextDetector(TINY, channels=16).eval()
    images = torch.randn(1, 3, 50, 64)
    compiled = torch.compile(detector, backend="eager", fullgraph=True)
    torch.testing.assert_close(compiled(images).prob_logits, detector(images).prob_logits)


def test_printing_a_detector_shows_its_settings_and_counts_its_parameters():
    detector = TextDetector(LITE, channels=16, scale_fusion=True)
    total = sum(value.numel() for value in detector.parameters())
    assert sum(detector.parameter_counts.values()) == total
    assert f"{total / 1e6:.2f} M parameters (encoder 0.27 M" in repr(detector)
    assert f"encoder={LITE}, decoder=fpn, channels=16, head_channels=4, scale_fusion=True" in repr(detector)


def test_weights_go_from_one_detector_to_another_that_its_architecture_describes():
    first = TextDetector(LITE, "pan", channels=32, head_channels=16).eval()
    second = TextDetector(**first.architecture).eval()
    second.load_weights(first.state_dict(), first.architecture)
    images = torch.randn(1, 3, 64, 64)
    torch.testing.assert_close(first(images).prob_map, second(images).prob_map)


def test_a_student_inherits_the_layers_of_decoder_and_head_that_fit_and_nothing_of_the_encoder():
    teacher, student = TextDetector("resnet18", channels=32), TextDetector(LITE, channels=32)
    before = {name: value.clone() for name, value in student.state_dict().items()}
    taken, own, given = set(student.inherit(teacher)), student.state_dict(), teacher.state_dict()
    assert {name.split(".")[0] for name in taken} == {"decoder", "head"}
    assert {name for name in own if name.startswith("head.")} <= taken
    # The first layers of the decoder read as many channels as the encoder has.
    assert "decoder.smooth.0.0.weight" in taken
    assert "decoder.lateral.0.0.weight" not in taken
    assert all(torch.equal(own[name], (given if name in taken else before)[name]) for name in own)
    # Otherwise the student would train the teacher.
    assert own["head.prob.0.0.weight"].data_ptr() != given["head.prob.0.0.weight"].data_ptr()


def test_a_checkpoint_of_another_architecture_is_refused_with_the_settings_that_differ():
    stored, detector = TextDetector(LITE, "pan", channels=16), TextDetector("resnet18", channels=16)
    before = {name: value.clone() for name, value in detector.state_dict().items()}
    with rejects(ConfigError, setting="model", value={"encoder": LITE, "decoder": "pan"}, path="last.ckpt"):
        detector.load_weights(stored.state_dict(), stored.architecture, "last.ckpt", path="last.ckpt")
    with rejects(ConfigError, setting="model", value={"decoder": "pan"}, path=None):
        TextDetector(LITE, channels=16).load_weights(stored.state_dict(), stored.architecture)
    with rejects(ConfigError, setting="model", value=describe_misfit(stored.state_dict(), before)):
        detector.load_weights(stored.state_dict())
    assert all(torch.equal(value, before[name]) for name, value in detector.state_dict().items())


@pytest.mark.parametrize(
    ("setting", "value"),
    [("decoder", "fnp"), ("channels", 30), ("channels", 0), ("channels", -4), ("head_channels", 0), ("k", 0.0)],
)
def test_settings_that_cannot_work_are_named(setting, value):
    with rejects(ConfigError, setting=setting, value=value):
        TextDetector(**{"encoder": LITE, "channels": 16} | {setting: value})


def test_a_name_that_models_do_not_have_is_an_AttributeError():
    with pytest.raises(AttributeError, match="NoSuchModel"):
        ocr.models.NoSuchModel  # noqa: B018


CONFIGS = Path(__file__).resolve().parents[2] / "configs"
PRESETS = sorted(file.stem for file in (CONFIGS / "model").glob("*.yaml"))


def config(preset: str, *overrides: str) -> DictConfig:
    with initialize_config_dir(str(CONFIGS), version_base="1.3"):
        return compose(f"model/{preset}", list(overrides))


@pytest.mark.parametrize("preset", PRESETS)
def test_a_preset_builds_a_detector_and_its_loss(preset):
    composed = config(preset)
    detector = instantiate(composed.model)
    assert isinstance(detector, TextDetector)
    assert isinstance(instantiate(composed.loss), DBLoss)
    assert detector.architecture["encoder"] == composed.model.encoder
    assert detector.eval()(torch.zeros(1, 3, 32, 32)).prob_map.shape == (1, 1, 32, 32)


def test_the_lite_preset_is_small():
    assert sum(instantiate(config("lite").model).parameter_counts.values()) < 500_000


def test_settings_reach_the_detector_and_the_loss():
    composed = config("lite", "model.decoder=pan", "model.scale_fusion=true", "model.k=20", "loss.negative_ratio=5")
    detector = instantiate(composed.model)
    assert (detector.architecture["decoder"], detector.scale_fusion is None, detector.head.k) == ("pan", False, 20)
    assert instantiate(composed.loss).negative_ratio == 5

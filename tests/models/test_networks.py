"""Networks have the sizes that papers and libraries state, and the options that the papers need."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from benchmark.errors import ConfigError
from benchmark.models.flat import FlatModel
from benchmark.models.networks import DepthwiseConv2d, Net, build_net

RGB = (3, 32, 32)
RESNET18 = 11_173_962
"""Parameters of ResNet-18 with the 32-pixel stem, three channels and ten classes."""


def built(
    name: str, classes: int = 10, shape: tuple[int, int, int] = RGB, seed: int = 0, **options: Any
) -> Net:
    return build_net(name, classes, shape, options, seed)


def without_memory(name: str, classes: int, **options: Any) -> Net:
    """A network for RGB images, without memory for its values."""
    with torch.device("meta"):
        return built(name, classes, **options)


def counted(name: str, classes: int, **options: Any) -> tuple[int, int]:
    """(parameters, numbers in BatchNorm's buffers) of a network for RGB images."""
    net = without_memory(name, classes, **options)
    return sum(p.numel() for p in net.parameters()), sum(b.numel() for b in net.buffers())


def images(*shape: int) -> Tensor:
    return torch.from_numpy(np.random.default_rng(0).normal(size=shape)).float()


@pytest.mark.parametrize(("channels", "parameters"), [(3, RESNET18), (1, RESNET18 - 2 * 64 * 9)])
def test_resnet18_has_the_known_size(channels: int, parameters: int) -> None:
    """Buffers: 4,800 normalised channels with a mean and a variance each, and 20 counters."""
    model = FlatModel(built("resnet18_32", shape=(channels, 32, 32)))
    assert model.layout.size == len(model.w) == parameters
    assert len(model.buffers) == 2 * 4800 + 20
    assert int(model.counters.sum()) == 20
    assert model.net.feature_dim == 512 and model.has_batch_norm
    assert int(model.layout.mask("norm").sum()) == 2 * 4800  # every BatchNorm, those of the shortcuts too
    assert int(model.layout.mask("head").sum()) == 512 * 10 + 10
    stem = model.net.body.conv1(torch.zeros(2, channels, 32, 32))
    assert stem.shape == model.net.body.maxpool(stem).shape == (2, 64, 32, 32)  # stride 1, no pooling


@pytest.mark.parametrize(
    ("name", "layers", "groups", "channels", "parameters", "features"),
    [
        # The stem, two in each of 8 blocks, three shortcuts.
        ("resnet18_gn", 20, 2, 4800, RESNET18, 512),
        # As resnet50.
        ("resnet50_gn", 53, 32, 26_560, 25_557_032 - 2049 * 990, 2048),
        # 3,504,872 parameters with 1,000 classes, and 52 convolutions.
        ("mobilenetv2_gn", 52, 8, 17_056, 3_504_872 - 1281 * 990, 1280),
    ],
)
def test_group_norm_has_batch_norms_size(
    name: str, layers: int, groups: int, channels: int, parameters: int, features: int
) -> None:
    net = without_memory(name, 10)
    assert [m.num_groups for m in net.modules() if isinstance(m, nn.GroupNorm)] == [groups] * layers
    model = FlatModel(net)
    assert not model.has_batch_norm
    assert len(model.buffers) == 0
    assert model.layout.size == parameters
    assert int(model.layout.mask("other_norm").sum()) == 2 * channels
    assert net.features(torch.zeros(1, 3, 56, 56, device="meta")).shape == (1, features)


@pytest.mark.parametrize("k", [1, 10])
def test_wide_resnet_has_the_size_that_fedmr_prints(k: int) -> None:
    """With biased convolutions and BatchNorm's numbers WRN-28-10 has FedMR's 36.565 M (Table 3).

    Widths a, b, c = 16 k, 32 k, 64 k. Convolutions: 9 (3 16 + 16 a + 7 a a + a b + 7 b b + b c + 7 c c), the shortcuts
    16 a + a b + b c, and a bias per channel. BatchNorm: 2 per channel before each of the 24 convolutions of the blocks
    and at the end. Classifier: c + 1 per class. With k = 1 the first block needs no shortcut.
    """
    a, b, c = 16 * k, 32 * k, 64 * k
    weights = 9 * (3 * 16 + 16 * a + 7 * a * a + a * b + 7 * b * b + b * c + 7 * c * c)
    first = (16 * a + a) * (k > 1)
    shortcuts, biases = first + a * b + b + b * c + c, 16 + 8 * (a + b + c)
    channels = (16 + 7 * a) + (a + 7 * b) + (b + 7 * c) + c
    found = counted("wrn28_10", 100, widening_factor=k)
    assert found == (weights + shortcuts + biases + 2 * channels + (c + 1) * 100, 2 * channels + 25)
    if k == 10:
        assert found == (36_546_980, 17_977) and f"{sum(found) / 1e6:.3f}" == "36.565"


@pytest.mark.parametrize(("hidden", "head"), [(0, 1281 * 8), (640, 1281 * 640 + 641 * 8)])
def test_efficientnet_has_the_known_size(hidden: int, head: int) -> None:
    """torchvision's table: 5,288,548 parameters with 1,000 classes. FedMR prints 4.875 M, with prototypes 4.880 M.

    With a hidden layer of h neurons it has 4,049,621 + 1,289 h numbers: 4.875 M is h = 640.
    """
    parameters, buffers = counted("efficientnet_b0", 8, hidden=hidden)
    assert (parameters, buffers) == (5_288_548 - 1000 * 1281 + head, 42_065)
    if hidden:
        assert f"{(parameters + buffers) / 1e6:.3f}" == "4.875"
        assert f"{(parameters + buffers + 8 * 640) / 1e6:.3f}" == "4.880"


@pytest.mark.parametrize("side", [1, 2, 4, 5, 7])
@pytest.mark.parametrize(("kernel", "stride"), [(3, 1), (3, 2), (5, 1), (5, 2)])
def test_depthwise_convolution_of_small_images(kernel: int, stride: int, side: int) -> None:
    plain = nn.Conv2d(6, 6, kernel, stride, padding=kernel // 2, groups=6)
    small = DepthwiseConv2d(6, 6, kernel, stride, padding=kernel // 2, groups=6)
    small.load_state_dict(plain.state_dict())
    results = []
    for conv in (plain, small):
        x = images(2, 6, side, side).requires_grad_()
        z = conv(x)
        results.append((z, *torch.autograd.grad((z * z).sum(), (x, conv.weight))))
    for ours, expected in zip(*results, strict=True):
        torch.testing.assert_close(ours, expected)


@pytest.mark.parametrize(
    ("name", "shape", "parameters"),
    [
        # 3x3 convolutions, then (filters * (height/4) * (width/4)) x hidden, then hidden x classes; all with biases.
        ("tiny_cnn", (1, 8, 8), (9 * 8 + 8) + (72 * 16 + 16) + (16 * 4 * 32 + 32) + 330),
        ("small_cnn", (1, 28, 28), (9 * 16 + 16) + (144 * 32 + 32) + (32 * 49 * 128 + 128) + 1290),
        ("small_cnn", RGB, (27 * 16 + 16) + (144 * 32 + 32) + (32 * 64 * 128 + 128) + 1290),
        ("tiny_mlp", (1, 8, 8), (64 * 64 + 64) + (64 * 10 + 10)),
    ],
)
def test_small_networks(name: str, shape: tuple[int, int, int], parameters: int) -> None:
    net = built(name, 10, shape)
    assert sum(p.numel() for p in net.parameters()) == parameters
    assert net(torch.zeros(3, *shape)).shape == (3, 10)


# Layers behind the body ------------------------------------------------------------------------------------------


def digits(seed: int = 0, **options: Any) -> Net:
    return built("tiny_cnn", shape=(1, 8, 8), seed=seed, **options)


def test_weights_depend_on_the_seed_alone() -> None:
    before = torch.get_rng_state()
    first, second, other = (digits(seed).classifier.weight for seed in (1, 1, 2))
    assert torch.equal(torch.get_rng_state(), before)  # building a model changes no other draw
    assert torch.equal(first, second)
    assert not torch.equal(first, other)


def test_projection_head() -> None:
    """Linear(32, 32), ReLU, Linear(32, 6) behind the body, and a classifier 6 -> 10; the body's draws stay.

    The features may then be divided by their length.
    """
    plain, deep, unit = digits(), digits(projection=6), digits(projection=6, normalize_features=True)
    assert deep.feature_dim == 6
    head = [(32, 32), (32,), (6, 32), (6,), (10, 6), (10,)]
    expected = [*(tuple(p.shape) for p in plain.body.parameters()), *head]
    assert [tuple(p.shape) for p in deep.parameters()] == expected
    x = images(5, 1, 8, 8)
    A, a, B, b = list(deep.body.parameters())[-4:]
    z = (plain.features(x) @ A.T + a).clamp(min=0) @ B.T + b
    torch.testing.assert_close(deep.features(x), z)
    torch.testing.assert_close(unit(x), deep.classify(z / z.norm(dim=1, keepdim=True)))
    assert int(FlatModel(deep).layout.mask("head").sum()) == 6 * 10 + 10


@pytest.mark.parametrize(
    ("name", "options", "said"),
    [
        ("tiny_cn", {}, r"model\.name: got 'tiny_cn'; .*resnet18_32.* Did you mean 'tiny_cnn'\?"),
        ("tiny_cnn", {"projection": True}, r"projection: got True;"),
        ("tiny_cnn", {"hiden": 3}, r"hiden: unknown key; .*Did you mean 'hidden'\?"),
        ("resnet18_32", {"depth": 3}, r"depth: unknown key; expected one of: .*width_multiplier"),
        ("tiny_cnn", {"feature_dropout": 1.0}, r"feature_dropout: got 1\.0;"),
        ("resnet18_32", {"pretrained": True}, r"pretrained: unknown key"),
        ("resnet50", {"pretrained": 1}, r"pretrained: got 1;"),
        ("resnet50", {"pretrained": True}, r"pretrained: got True; .*1 channel"),
        ("efficientnet_b0", {"hidden": -1}, r"hidden: got -1;"),
        ("wrn28_10", {"widening_factor": 0}, r"widening_factor: got 0;"),
        ("resnet50", {"width_multiplier": 0.1}, r"width_multiplier: got 0\.1; .*0\.125"),
        (
            "mobilenetv2_gn",
            {"width_multiplier": 0.4},
            r"width_multiplier: got 0\.4; .*0\.35, 0\.5, 0\.75, 1, 1\.4",
        ),
    ],
)
def test_mistakes(name: str, options: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said) as caught:
        built(name, shape=(1, 8, 8), **options)
    assert str(caught.value).startswith("model.")

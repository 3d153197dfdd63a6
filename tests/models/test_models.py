"""Models and their view as one vector."""

from __future__ import annotations

import copy
import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from federations import mlp
from torch import Tensor, nn

from benchmark.errors import ConfigError
from benchmark.models.networks import FlatModel, Net, WideBlock, build_net, flatten_head, model_names
from methods.core.vectors import Layout

SHAPES = {
    "tiny_cnn": (1, 8, 8),
    "small_cnn": (3, 32, 32),
    "resnet18_32": (3, 32, 32),
    "mobilenetv2_gn": (3, 32, 32),
    "resnet18_gn": (3, 32, 32),
    "resnet50": (3, 32, 32),
    "wrn28_10": (3, 8, 8),
    "efficientnet_b0": (3, 32, 32),
}


def net_of(name: str, seed: int = 0, classes: int = 10) -> Net:
    return build_net(name, classes, SHAPES[name], {}, seed)


def some_net() -> Net:
    """Convolution, BatchNorm, GroupNorm and a linear layer in the body; double precision."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        body = nn.Sequential(
            nn.Conv2d(2, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 4, 1, bias=False),
            nn.GroupNorm(2, 4), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(16, 5),
        )  # fmt: skip
        return Net(body, nn.Linear(5, 3), 5).double()


def images(shape: tuple[int, ...] = (6, 2, 5, 5)) -> Tensor:
    return torch.from_numpy(np.random.default_rng(0).normal(size=shape))


# Architectures ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("channels", "parameters"), [(3, 11_173_962), (1, 11_172_810)])
def test_resnet18_has_the_known_size(channels: int, parameters: int) -> None:
    """The 3 x 3 stem has 64 * 9 weights per input channel, so one channel has 1,152 fewer than three.

    Buffers: 4,800 normalised channels with a mean and a variance each, and 20 counters.
    """
    model = FlatModel(build_net("resnet18_32", 10, (channels, 32, 32), {}, 0))
    assert model.layout.size == len(model.w) == parameters
    assert len(model.buffers) == 2 * 4800 + 20 == 9620
    assert int(model.counters.sum()) == 20
    assert model.net.feature_dim == 512
    assert model.has_batch_norm
    assert int(model.layout.mask("norm").sum()) == 2 * 4800  # every BatchNorm, those of the shortcuts too
    assert int(model.layout.mask("head").sum()) == 512 * 10 + 10
    x = torch.zeros(2, channels, 32, 32)
    assert model.net.features(x).shape == (2, 512)
    stem = model.net.body.conv1(x)
    assert stem.shape == model.net.body.maxpool(stem).shape == (2, 64, 32, 32)  # stride 1, no pooling


def test_mobilenet_has_group_norm_of_eight_groups() -> None:
    net = net_of("mobilenetv2_gn")
    assert not any(isinstance(m, nn.modules.batchnorm._BatchNorm) for m in net.modules())
    groups = [m.num_groups for m in net.modules() if isinstance(m, nn.GroupNorm)]
    assert len(groups) == 52  # as many as MobileNetV2 has convolutions
    assert set(groups) == {8}
    model = FlatModel(net)
    assert not model.has_batch_norm
    assert len(model.buffers) == 0
    # MobileNetV2 has 3,504,872 parameters with 1,000 classes; GroupNorm has as many as BatchNorm.
    assert model.layout.size == 3_504_872 - 1280 * 1000 - 1000 + 1280 * 10 + 10
    assert net(torch.zeros(2, 3, 32, 32)).shape == (2, 10)


def counted(name: str, classes: int, parameters: dict) -> tuple[int, int]:
    """(parameters, numbers in BatchNorm's buffers) of a network for RGB images, without memory for their values."""
    with torch.device("meta"):
        net = build_net(name, classes, (3, 32, 32), parameters, 0)
    return sum(p.numel() for p in net.parameters()), sum(b.numel() for b in net.buffers())


def test_resnet50_has_the_known_size() -> None:
    """torchvision states 25,557,032 parameters with 1,000 classes; 26,560 channels are normalised, by 53 layers."""
    assert counted("resnet50", 2, {}) == (25_557_032 - 998 * 2049, 2 * 26_560 + 53)
    net = build_net("resnet50", 2, (3, 64, 64), {}, 0)
    assert net.feature_dim == 2048
    stem = net.body.conv1(torch.zeros(1, 3, 64, 64))
    assert stem.shape == (1, 64, 32, 32)
    assert net.body.maxpool(stem).shape == (1, 64, 16, 16)


def test_wide_resnet_has_the_size_that_fedmr_prints() -> None:
    """Zagoruyko & Komodakis print 36.5 M; with biased convolutions and BatchNorm's numbers FedMR's 36.565 M.

    Convolutions: 9 * (c 16 + 16 160 + 7 160 160 + 160 320 + 7 320 320 + 320 640 + 7 640 640), the shortcuts
    16 160 + 160 320 + 320 640, and a bias per channel. BatchNorm: 2 per channel before each of the 24 convolutions of
    the blocks and at the end. Classifier: 641 per class.
    """
    weights = 9 * (3 * 16 + 16 * 160 + 7 * 160**2 + 160 * 320 + 7 * 320**2 + 320 * 640 + 7 * 640**2)
    shortcuts = 16 * 160 + 160 * 320 + 320 * 640
    biases = 16 + 8 * (160 + 320 + 640) + (160 + 320 + 640)
    channels = (16 + 7 * 160) + (160 + 7 * 320) + (320 + 7 * 640) + 640
    expected = weights + shortcuts + biases + 2 * channels + 641 * 100
    parameters, buffers = counted("wrn28_10", 100, {})
    assert (parameters, buffers) == (expected, 2 * channels + 25) == (36_546_980, 17_977)
    assert f"{(parameters + buffers) / 1e6:.3f}" == "36.565"


def test_a_narrow_wide_resnet() -> None:
    """k = 1: as above with 16, 32, 64 in place of 160, 320, 640; the first block then needs no shortcut."""
    weights = 9 * (3 * 16 + 16 * 16 + 7 * 16**2 + 16 * 32 + 7 * 32**2 + 32 * 64 + 7 * 64**2)
    shortcuts, shortcut_biases = 16 * 32 + 32 * 64, 32 + 64
    biases = 16 + 8 * (16 + 32 + 64) + shortcut_biases
    channels = (16 + 7 * 16) + (16 + 7 * 32) + (32 + 7 * 64) + 64
    expected = weights + shortcuts + biases + 2 * channels + 65 * 100
    assert counted("wrn28_10", 100, {"widening_factor": 1}) == (expected, 2 * channels + 25)


@pytest.mark.parametrize(
    ("name", "multiplier", "features"),
    [
        ("resnet18_32", 0.125, 64),
        ("resnet18_gn", 0.03, 16),  # 15.36, rounded to a whole number of groups of two
        ("resnet50", 0.125, 256),
        ("resnet50", 2, 4096),
        ("mobilenetv2_gn", 0.35, 1280),  # the paper leaves the last convolution as it is below 1
        ("mobilenetv2_gn", 1.4, 1792),
    ],
)
def test_narrow_and_wide_networks(name: str, multiplier: float, features: int) -> None:
    net = build_net(name, 5, (3, 32, 32), {"width_multiplier": multiplier}, 0).eval()
    z = net.features(images((2, 3, 32, 32)).float())
    assert z.shape == (2, features) and net.classify(z).shape == (2, 5)
    plain = counted(name, 5, {})[0]
    assert (counted(name, 5, {"width_multiplier": multiplier})[0] < plain) == (multiplier < 1)
    assert counted(name, 5, {"width_multiplier": 1})[0] == plain


def test_trained_weights_are_of_the_usual_width() -> None:
    with pytest.raises(
        ConfigError, match=r"came true with model\.width_multiplier=0\.5; trained weights are for 1"
    ):
        build_net("resnet50", 5, (3, 32, 32), {"pretrained": True, "width_multiplier": 0.5}, 0)


def test_wide_resnet_drops_between_the_convolutions() -> None:
    net = build_net("wrn28_10", 3, (1, 8, 8), {"dropout": 0.3}, 0)
    rates = [m.p for m in net.body.modules() if isinstance(m, nn.Dropout)]
    assert rates == [0.3] * 12
    block = WideBlock(2, 4, 2, 0.5).eval()
    x = images((3, 2, 6, 6)).float()
    for norm in (block.norm1, block.norm2):  # neutral in evaluation mode, up to the epsilon of 1e-5
        norm.eps = 0.0
    active = x.clamp(min=0)
    by_hand = block.conv2(block.conv1(active).clamp(min=0)) + block.shortcut(active)
    torch.testing.assert_close(block(x), by_hand)
    assert by_hand.shape == (3, 4, 3, 3)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        block.dropout.train()
        assert not torch.allclose(block(x), by_hand)


@pytest.mark.parametrize(
    ("hidden", "parameters"),
    [
        (0, 5_288_548 - 992 * 1281),  # torchvision's table of 1,000 classes
        (640, 5_288_548 - 1000 * 1281 + 1281 * 640 + 641 * 8),
    ],
)
def test_efficientnet_has_the_known_size(hidden: int, parameters: int) -> None:
    """The plain network has 4,017,796 parameters and 42,065 buffers; FedMR prints 4.875 M, with prototypes 4.880 M.

    With a hidden layer of h neurons it has 4,049,621 + 1,289 h numbers: 4.875 M is h = 640 and no other.
    """
    assert counted("efficientnet_b0", 8, {"hidden": hidden}) == (parameters, 42_065)
    fitting = [h for h in range(1, 2000) if f"{(4_049_621 + 1289 * h) / 1e6:.3f}" == "4.875"]
    assert fitting == [640]
    if hidden:
        assert parameters + 42_065 == 4_049_621 + 1289 * 640
        assert f"{(parameters + 42_065 + 8 * 640) / 1e6:.3f}" == "4.880"


def test_resnet18_with_group_norm() -> None:
    net = build_net("resnet18_gn", 7, (3, 56, 56), {"groups": 2}, 0)
    groups = [m.num_groups for m in net.modules() if isinstance(m, nn.GroupNorm)]
    assert groups == [2] * 20  # the stem, two in each of 8 blocks, three shortcuts
    model = FlatModel(net)
    assert not model.has_batch_norm
    assert len(model.buffers) == 0
    assert model.layout.size == 11_173_962 - 3 * 513
    assert int(model.layout.mask("other_norm").sum()) == 2 * 4800
    assert net.features(torch.zeros(1, 3, 56, 56)).shape == (1, 512)


def test_drop_path_skips_blocks_in_training_only() -> None:
    """Of two equal images one may skip a block that the other goes through."""
    net = build_net("mobilenetv2_gn", 2, (3, 32, 32), {"drop_path": 0.9}, 0)
    x = images((1, 3, 32, 32)).float().expand(8, 3, 32, 32)
    with torch.no_grad():
        torch.testing.assert_close(net.eval()(x)[0], net.eval()(x)[7])
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            assert net.train().features(x).std(dim=0).max() > 1e-3


@pytest.mark.parametrize(
    ("name", "shape", "parameters"),
    [
        # 3x3 convolutions, then (filters * (height/4) * (width/4)) x hidden, then hidden x classes; all with biases.
        ("tiny_cnn", (1, 8, 8), (9 * 8 + 8) + (72 * 16 + 16) + (16 * 4 * 32 + 32) + (32 * 10 + 10)),
        ("small_cnn", (1, 28, 28), (9 * 16 + 16) + (144 * 32 + 32) + (32 * 49 * 128 + 128) + (128 * 10 + 10)),
        (
            "small_cnn",
            (3, 32, 32),
            (27 * 16 + 16) + (144 * 32 + 32) + (32 * 64 * 128 + 128) + (128 * 10 + 10),
        ),
    ],
)
def test_small_networks(name: str, shape: tuple[int, int, int], parameters: int) -> None:
    net = build_net(name, 10, shape, {}, 0)
    assert sum(p.numel() for p in net.parameters()) == parameters
    assert net(torch.zeros(3, *shape)).shape == (3, 10)


def test_weights_depend_on_the_seed_alone() -> None:
    torch.rand(3)
    before = torch.get_rng_state()
    first = flatten_head(net_of("tiny_cnn", seed=1).classifier)
    assert torch.equal(torch.get_rng_state(), before)  # building a model moves no other draw
    torch.rand(5)
    assert torch.equal(flatten_head(net_of("tiny_cnn", seed=1).classifier), first)
    assert not torch.equal(flatten_head(net_of("tiny_cnn", seed=2).classifier), first)


def test_options_of_a_model() -> None:
    assert build_net("tiny_cnn", 10, (1, 8, 8), {"hidden": 7}, 0).feature_dim == 7


def test_feature_dropout() -> None:
    """In training a share of the features is zero and the others are scaled up; otherwise nothing changes."""
    plain, dropping = (build_net("tiny_cnn", 10, (1, 8, 8), p, 0) for p in ({}, {"feature_dropout": 0.25}))
    x = images((400, 1, 8, 8)).float()
    z = plain.features(x)
    assert torch.equal(dropping.eval().features(x), z)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        dropped = dropping.train().features(x)
    zero = dropped == 0
    torch.testing.assert_close(dropped[~zero], z[~zero] / 0.75)
    assert float(zero[z > 0].float().mean()) == pytest.approx(0.25, abs=0.03)
    assert type(build_net("tiny_cnn", 10, (1, 8, 8), {"feature_dropout": 0}, 0).body) is type(plain.body)
    assert [p.shape for p in dropping.parameters()] == [p.shape for p in plain.parameters()]


def test_projection_head() -> None:
    """Linear(32, 32), ReLU, Linear(32, 6) behind the body, and a classifier 6 -> 10; the body's draws stay."""
    plain, deep = (build_net("tiny_cnn", 10, (1, 8, 8), p, 0) for p in ({}, {"projection": 6}))
    assert deep.feature_dim == 6
    body = [p.shape for p in plain.body.parameters()]
    head = [(32, 32), (32,), (6, 32), (6,), (10, 6), (10,)]
    assert [tuple(p.shape) for p in deep.parameters()] == [*map(tuple, body), *head]
    x = images((5, 1, 8, 8)).float()
    h = plain.features(x)
    A, a, B, b = list(deep.body.parameters())[-4:]
    torch.testing.assert_close(deep.features(x), (h @ A.T + a).clamp(min=0) @ B.T + b)
    assert deep(x).shape == (5, 10)
    layout = FlatModel(deep).layout
    assert int(layout.mask("head").sum()) == 6 * 10 + 10


def test_features_of_length_one() -> None:
    plain, unit = (build_net("tiny_cnn", 10, (1, 8, 8), p, 0) for p in ({}, {"normalize_features": True}))
    x = images((5, 1, 8, 8)).float()
    z = plain.features(x)
    torch.testing.assert_close(unit.features(x), z / z.norm(dim=1, keepdim=True))
    torch.testing.assert_close(unit(x), plain.classify(z / z.norm(dim=1, keepdim=True)))


@pytest.mark.parametrize(
    ("name", "parameters", "message"),
    [
        ("tiny_cnn", {"projection": -1}, r"model\.projection: came -1\. Allowed: a whole number"),
        ("tiny_cnn", {"projection": True}, r"model\.projection: came True"),
        ("tiny_cnn", {"normalize_features": 1}, r"model\.normalize_features: came 1\. Allowed: true, false"),
        (
            "tiny_cn",
            {},
            r"model\.name: no model is called 'tiny_cn'\. Did you mean 'tiny_cnn'\? Known: .*resnet18_32",
        ),
        ("tiny_cnn", {"hiden": 3}, r"model\.hiden: unknown parameter of tiny_cnn\. Did you mean 'hidden'\?"),
        (
            "resnet18_32",
            {"depth": 3},
            r"model\.depth: unknown parameter of resnet18_32\. Allowed: width_multiplier, projection",
        ),
        (
            "tiny_cnn",
            {"feature_dropout": 1.0},
            r"model\.feature_dropout: came 1\.0\. Allowed: a number from 0",
        ),
        ("tiny_cnn", {"feature_dropout": "a"}, r"model\.feature_dropout: came 'a'"),
        ("resnet18_32", {"pretrained": True}, r"model\.pretrained: unknown parameter of resnet18_32"),
        ("resnet50", {"pretraind": True}, r"model\.pretraind: .*Did you mean 'pretrained'\?"),
        ("resnet50", {"pretrained": 1}, r"model\.pretrained: came 1\. Allowed: true, false"),
        ("resnet50", {"pretrained": True}, r"model\.pretrained: came true for images with 1 channel"),
        ("efficientnet_b0", {"hidden": -1}, r"model\.hidden: came -1\. Allowed: a whole number"),
        ("mobilenetv2_gn", {"drop_path": 1}, r"model\.drop_path: came 1\. Allowed: a number from 0"),
        ("wrn28_10", {"dropout": "no"}, r"model\.dropout: came 'no'"),
        (
            "wrn28_10",
            {"widening_factor": 0},
            r"model\.widening_factor: came 0\. Allowed: a whole number from 1",
        ),
        ("resnet50", {"width_multiplier": 0}, r"model\.width_multiplier: came 0\. Allowed: a number above 0"),
        ("resnet18_gn", {"width_multiplier": "no"}, r"model\.width_multiplier: came 'no'"),
        (
            "mobilenetv2_gn",
            {"width_multiplier": 0.4},
            r"model\.width_multiplier: came 0\.4\. Allowed: 0\.35, 0\.5, 0\.75, 1, 1\.4\.",
        ),
    ],
)
def test_mistakes(name: str, parameters: dict, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        build_net(name, 10, (1, 8, 8), parameters, 0)


def test_all_models_are_registered() -> None:
    assert set(SHAPES) <= set(model_names())


# One vector ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["tiny_cnn", "small_cnn", "resnet18_32", "mobilenetv2_gn", "efficientnet_b0"]
)
def test_a_flat_model_computes_what_the_module_computes(name: str) -> None:
    plain = net_of(name).double()
    flat = FlatModel(copy.deepcopy(plain))
    x = images((2, *SHAPES[name]))
    for training in (True, False):
        plain.train(training)
        flat.net.train(training)
        with torch.no_grad():
            assert torch.equal(flat.net(x), plain(x))
    values = torch.cat([b.double().flatten() for b in plain.buffers()]) if len(flat.buffers) else flat.buffers
    assert torch.equal(flat.buffers, values)


@pytest.mark.parametrize("channels_last", [False, True])
def test_gradients_and_statistics_are_views(channels_last: bool) -> None:
    plain = some_net()
    flat = FlatModel(copy.deepcopy(plain), channels_last=channels_last)
    x, y = images(), torch.tensor([0, 1, 2, 0, 1, 2])
    if channels_last:
        x = x.contiguous(memory_format=torch.channels_last)
    g, w, buffers = flat.g, flat.w, flat.buffers
    for number in (1, 2):  # the second time on top of the first: nothing is cut off from the vectors
        F.cross_entropy(plain(x), y).backward()
        F.cross_entropy(flat.net(x), y).backward()
        for name, parameter in plain.named_parameters():
            view = flat.layout.view(flat.g, name)
            assert view.shape == parameter.shape
            np.testing.assert_allclose(view, parameter.grad, rtol=0, atol=1e-12)
        for name, buffer in plain.named_buffers():
            view = flat.buffer_layout.view(flat.buffers, name)
            np.testing.assert_allclose(view, buffer.double(), rtol=0, atol=1e-12)
        assert flat.buffers[flat.counters].tolist() == [number]
        with torch.no_grad():
            for parameter in plain.parameters():
                parameter.sub_(0.1 * parameter.grad)
            flat.w.sub_(flat.g, alpha=0.1)
        np.testing.assert_allclose(flat.net.eval()(x).detach(), plain.eval()(x).detach(), rtol=0, atol=1e-12)
        plain.train(), flat.net.train()
    assert flat.g is g
    assert flat.w is w
    assert flat.buffers is buffers


def test_writing_the_vector_writes_the_module() -> None:
    flat = FlatModel(some_net())
    flat.w.fill_(2.0)
    assert all(bool((p == 2).all()) for p in flat.net.parameters())
    flat.buffers.fill_(3.0)
    assert all(bool((b == 3).all()) for b in flat.net.buffers())


def test_groups_by_type_of_layer() -> None:
    entries = {e.name: (e.shape, e.group) for e in FlatModel(some_net()).layout.entries}
    assert entries == {
        "body.0.weight": ((4, 2, 3, 3), "body"),
        "body.0.bias": ((4,), "body"),
        "body.1.weight": ((4,), "norm"),
        "body.1.bias": ((4,), "norm"),
        "body.3.weight": ((4, 4, 1, 1), "body"),
        "body.4.weight": ((4,), "other_norm"),
        "body.4.bias": ((4,), "other_norm"),
        "body.7.weight": ((5, 16), "body"),
        "body.7.bias": ((5,), "body"),
        "classifier.weight": ((3, 5), "head"),
        "classifier.bias": ((3,), "head"),
    }


def test_the_layout_has_no_gaps_and_the_head_comes_last() -> None:
    flat = FlatModel(some_net())
    stops = [0, *(e.stop for e in flat.layout.entries)]
    assert [e.start for e in flat.layout.entries] == stops[:-1]
    assert all(e.stop - e.start == math.prod(e.shape) for e in flat.layout.entries)
    head = flat.layout.mask("head").nonzero().flatten()
    assert head.tolist() == list(range(flat.body_size, flat.layout.size))


def heads() -> dict[str, nn.Module]:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(5)
        return {
            "wide": nn.Sequential(nn.Linear(8, 20), nn.Linear(20, 3)).double(),
            "narrow": nn.Linear(8, 3, bias=False).double(),
        }


def test_other_heads_take_the_classifiers_place() -> None:
    net = mlp()
    values = torch.cat([p.detach().flatten() for p in net.parameters()])
    flat = FlatModel(net, heads())
    own = flat.w.clone()
    assert torch.equal(own, values)  # the model's own classifier, not the last of the others
    assert {key: layout.size for key, layout in flat.layouts.items()} == {
        None: 56 + 27, "wide": 56 + 8 * 20 + 20 + 20 * 3 + 3, "narrow": 56 + 24,
    }  # fmt: skip
    x = images((4, 6))
    for key, head in heads().items():
        flat.use_head(key)
        flat.w[flat.body_size :].copy_(flatten_head(head))
        assert flat.w.shape == flat.g.shape == (flat.layout.size,)
        assert flat.layout is flat.layouts[key]
        with torch.no_grad():
            np.testing.assert_allclose(flat.net(x), head(flat.net.features(x)), rtol=0, atol=1e-14)
        flat.g.zero_()
        flat.net(x).sum().backward()
        assert bool((flat.g[flat.body_size :] != 0).all())
    flat.use_head(None)
    flat.w.copy_(own)
    assert torch.equal(flat.w[:56], own[:56])


@pytest.mark.parametrize("channels_last", [False, True])
def test_flatten_head_has_the_order_of_the_layout(channels_last: bool) -> None:
    head = nn.Sequential(nn.Unflatten(1, (5, 1, 1)), nn.Conv2d(5, 3, 1), nn.Flatten()).double()
    flat = FlatModel(some_net(), {"convolution": head}, channels_last=channels_last)
    flat.use_head("convolution")
    vector = flatten_head(
        nn.Sequential(copy.deepcopy(head[0]), copy.deepcopy(head[1]), nn.Flatten()), channels_last
    )
    assert vector.shape == (3 * 5 + 3,)
    flat.w[flat.body_size :].fill_(-1)
    flat.w[flat.body_size :].copy_(vector)
    assert torch.equal(flat.net.classifier[1].weight, flat.layout.view(flat.w, "classifier.1.weight"))
    assert torch.equal(flatten_head(flat.net.classifier, channels_last), vector)


def test_a_twin_is_a_copy_of_its_own() -> None:
    flat = FlatModel(some_net(), {"other": nn.Linear(5, 3, bias=False)})
    twin = flat.twin()
    assert twin.g is None
    assert twin.layouts == flat.layouts
    assert torch.equal(twin.w, flat.w)
    assert torch.equal(twin.buffers, flat.buffers)
    before = flat.w.clone()
    twin.w.fill_(9.0)
    twin.buffers.fill_(9.0)
    assert torch.equal(flat.w, before)
    assert not bool((flat.buffers == 9).any())
    assert not any(p.requires_grad for p in twin.net.parameters())
    assert all(p.requires_grad for p in flat.net.parameters())


def test_a_twin_has_the_same_layouts_whatever_head_is_in_place() -> None:
    flat = FlatModel(some_net(), {"other": nn.Linear(5, 3, bias=False)})
    flat.use_head("other")
    assert flat.twin().layouts == flat.layouts


def test_shares_memory() -> None:
    flat = FlatModel(some_net())
    assert all(
        flat.shares_memory(t)
        for t in (flat.w, flat.w[3:5], flat.g, flat.buffers, next(flat.net.parameters()))
    )
    assert not any(flat.shares_memory(t) for t in (flat.w.clone(), torch.zeros(3), torch.zeros(0)))


def test_freezing_batch_norm_keeps_its_affine_part() -> None:
    flat = FlatModel(some_net())
    flat.net.train()
    flat.freeze_batch_norm()
    before = flat.buffers.clone()
    flat.net(images()).sum().backward()
    assert torch.equal(flat.buffers, before)
    assert bool((flat.layout.view(flat.g, "body.1.bias") != 0).any())
    assert flat.net.body[2].training


def test_layouts_of_two_models_are_compared_by_name() -> None:
    same: Layout = FlatModel(some_net()).layout
    FlatModel(some_net()).layout.require_same(same, "update")
    other = Net(mlp().body, nn.Linear(8, 4), 8)
    with pytest.raises(
        ValueError, match=r"update: tensor 'classifier\.weight' \(4, 8\).*\(3, 8\) is expected"
    ):
        FlatModel(mlp()).layout.require_same(FlatModel(other).layout, "update")

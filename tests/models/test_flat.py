"""A network's parameters, gradients and buffers as vectors."""

from __future__ import annotations

import copy
import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from federations import mlp, seeded
from torch import Tensor, nn

from benchmark.models.flat import FlatModel, flatten_head
from benchmark.models.networks import Net, build_net

SHAPES = {
    "tiny_cnn": (1, 8, 8),
    "resnet18_32": (3, 32, 32),
    "mobilenetv2_gn": (3, 32, 32),
    "efficientnet_b0": (3, 32, 32),
}


def _some_net() -> Net:
    body = nn.Sequential(
        nn.Conv2d(2, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 4, 1, bias=False),
        nn.GroupNorm(2, 4), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(16, 5),
    )  # fmt: skip
    return Net(body, nn.Linear(5, 3), 5).double()


def some_net() -> Net:
    """Convolution, BatchNorm, GroupNorm and a linear layer in the body; double precision."""
    return seeded(_some_net, 0)


def images(*shape: int) -> Tensor:
    return torch.from_numpy(np.random.default_rng(0).normal(size=shape or (6, 2, 5, 5)))


@pytest.mark.parametrize("name", SHAPES)
def test_a_flat_model_computes_what_the_module_computes(name: str) -> None:
    plain = build_net(name, 10, SHAPES[name], {}, 0).double()
    flat = FlatModel(copy.deepcopy(plain))
    x = images(2, *SHAPES[name])
    for training in (True, False):
        plain.train(training)
        flat.net.train(training)
        with torch.no_grad():
            assert torch.equal(flat.net(x), plain(x))
    values = [b.double().flatten() for b in plain.buffers()]
    assert torch.equal(flat.buffers, torch.cat(values) if values else torch.zeros(0).double())


@pytest.mark.parametrize("channels_last", [False, True])
def test_gradients_and_statistics_are_views(channels_last: bool) -> None:
    plain = some_net()
    flat = FlatModel(copy.deepcopy(plain), channels_last=channels_last)
    x, y = images(), torch.tensor([0, 1, 2, 0, 1, 2])
    if channels_last:
        x = x.contiguous(memory_format=torch.channels_last)
    g, w, buffers = flat.g, flat.w, flat.buffers
    for number in (1, 2):  # the second time on top of the first: everything is still a view of the vectors
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
    assert flat.g is g and flat.w is w and flat.buffers is buffers


def test_writing_the_vector_writes_the_module() -> None:
    flat = FlatModel(some_net())
    flat.w.fill_(2.0)
    flat.buffers.fill_(3.0)
    assert all(bool((p == 2).all()) for p in flat.net.parameters())
    assert all(bool((b == 3).all()) for b in flat.net.buffers())


def test_layout_has_groups_by_type_of_layer_no_gaps_and_the_head_last() -> None:
    flat = FlatModel(some_net())
    entries = flat.layout.entries
    assert {e.name: (e.shape, e.group) for e in entries} == {
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
    assert [e.start for e in entries] == [0, *(e.stop for e in entries)][:-1]
    assert all(e.stop - e.start == math.prod(e.shape) for e in entries)
    head = flat.layout.mask("head").nonzero().flatten()
    assert head.tolist() == list(range(flat.body_size, flat.layout.size))


def heads() -> dict[str, nn.Module]:
    return {
        "wide": nn.Sequential(nn.Linear(8, 20), nn.Linear(20, 3)).double(),
        "narrow": nn.Linear(8, 3, bias=False).double(),
    }


def test_other_heads_take_the_classifiers_place() -> None:
    net, given = mlp(), heads()
    values = torch.cat([p.detach().flatten() for p in net.parameters()])
    flat = FlatModel(net, copy.deepcopy(given))
    assert torch.equal(flat.w, values)  # the model's own classifier, not the last of the others
    sizes = {None: 56 + 27, "wide": 56 + 8 * 20 + 20 + 20 * 3 + 3, "narrow": 56 + 24}
    assert {key: layout.size for key, layout in flat.layouts.items()} == sizes
    x = images(4, 6)
    for key, head in given.items():
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
    assert torch.equal(flat.w[:56], values[:56])


@pytest.mark.parametrize("channels_last", [False, True])
def test_flatten_head_has_the_order_of_the_layout(channels_last: bool) -> None:
    head = nn.Sequential(nn.Unflatten(1, (5, 1, 1)), nn.Conv2d(5, 3, 1), nn.Flatten()).double()
    vector = flatten_head(copy.deepcopy(head), channels_last)
    assert vector.shape == (3 * 5 + 3,)
    flat = FlatModel(some_net(), {"convolution": head}, channels_last=channels_last)
    flat.use_head("convolution")
    flat.w[flat.body_size :].copy_(vector)
    assert torch.equal(flat.net.classifier[1].weight, flat.layout.view(flat.w, "classifier.1.weight"))
    assert torch.equal(flatten_head(flat.net.classifier, channels_last), vector)


@pytest.mark.parametrize("in_place", [None, "other"])
def test_a_twin_is_an_independent_copy(in_place: str | None) -> None:
    flat = FlatModel(some_net(), {"other": nn.Linear(5, 3, bias=False)})
    flat.use_head(in_place)
    twin = flat.twin()
    flat.use_head(None)
    assert twin.g is None and twin.layouts == flat.layouts
    assert torch.equal(twin.w, flat.w) and torch.equal(twin.buffers, flat.buffers)
    before = flat.w.clone()
    twin.w.fill_(9.0)
    twin.buffers.fill_(9.0)
    assert torch.equal(flat.w, before) and not bool((flat.buffers == 9).any())
    assert not any(p.requires_grad for p in twin.net.parameters())
    assert all(p.requires_grad for p in flat.net.parameters())


def test_shares_memory() -> None:
    flat = FlatModel(some_net())
    own = (flat.w, flat.w[3:5], flat.g, flat.buffers, next(flat.net.parameters()))
    assert all(flat.shares_memory(t) for t in own)
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
    FlatModel(some_net()).layout.require_same(FlatModel(some_net()).layout, "update")
    other = FlatModel(Net(mlp().body, nn.Linear(8, 4), 8))
    with pytest.raises(ValueError, match=r"update: .*'classifier\.weight' \(4, 8\).*\(3, 8\)"):
        FlatModel(mlp()).layout.require_same(other.layout, "update")

"""A network's parameters, gradients and buffers as vectors."""

import copy
import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from federations import near, seeded
from torch import Tensor, nn

from benchmark.models.flat import FlatModel, focal_loss
from benchmark.models.networks import Net
from methods.core.contexts import Head


def some_net() -> Net:
    """Convolution, BatchNorm, GroupNorm and a linear layer in the body; double precision."""

    def made() -> Net:
        body = nn.Sequential(
            nn.Conv2d(2, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 4, 1, bias=False),
            nn.GroupNorm(2, 4), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(16, 5),
        )  # fmt: skip
        return Net(body, nn.Linear(5, 3), 5).double()

    return seeded(made, 0)


def images() -> Tensor:
    return torch.from_numpy(np.random.default_rng(0).normal(size=(6, 2, 5, 5)))


@pytest.mark.parametrize("channels_last", [False, True])
def test_gradients_and_statistics_are_views(channels_last: bool) -> None:
    plain = some_net()
    flat = FlatModel(copy.deepcopy(plain), channels_last=channels_last)
    x, y = images(), torch.tensor([0, 1, 2, 0, 1, 2])
    if channels_last:
        x = x.contiguous(memory_format=torch.channels_last)
    g, w, buffers = flat.g, flat.w, flat.buffers
    for number in (1, 2):  # the second time at other values: the gradients are new
        plain.zero_grad()
        F.cross_entropy(plain(x), y).backward()
        flat.forget_gradients()
        F.cross_entropy(flat.net(x), y).backward()
        flat.collect_gradients()
        for (_, parameter), entry in zip(plain.named_parameters(), flat.layout.entries, strict=True):
            view = entry.view(flat.g)
            assert view.shape == parameter.shape
            near(view, parameter.grad, 1e-12)
        for (_, buffer), entry in zip(plain.named_buffers(), flat.buffer_layout.entries, strict=True):
            view = entry.view(flat.buffers)
            near(view, buffer.double(), 1e-12)
        assert flat.buffers[flat.counters].tolist() == [number]
        with torch.no_grad():
            for parameter in plain.parameters():
                parameter.sub_(0.1 * parameter.grad)
            flat.w.sub_(flat.g, alpha=0.1)
        near(flat.net.eval()(x).detach(), plain.eval()(x).detach(), 1e-12)
        plain.train(), flat.net.train()
    assert flat.g is g and flat.w is w and flat.buffers is buffers


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


@pytest.mark.parametrize("channels_last", [False, True])
def test_other_heads_take_the_classifiers_place(channels_last: bool) -> None:
    convolution = nn.Sequential(nn.Unflatten(1, (5, 1, 1)), nn.Conv2d(5, 3, 1), nn.Flatten())
    given = {"convolution": convolution.double(), "narrow": nn.Linear(5, 3, bias=False).double()}
    net = some_net()
    classifier, body = copy.deepcopy(net.classifier), sum(p.numel() for p in net.body.parameters())
    flat = FlatModel(net, copy.deepcopy(given), channels_last=channels_last)
    # The model's own classifier is in place at first, not the last of the others.
    assert torch.equal(flat.net.classifier.weight, classifier.weight)
    sizes = {None: body + 18, "convolution": body + 18, "narrow": body + 15}
    assert {key: layout.size for key, layout in flat.layouts.items()} == sizes
    x = images()
    for key, head in given.items():
        flat.use_head(key)
        flat.w[flat.body_size :].copy_(flat.initial_heads[key])
        assert flat.w.shape == flat.g.shape == (flat.layout.size,)
        assert flat.layout is flat.layouts[key]
        with torch.no_grad():
            near(flat.net.eval()(x), head(flat.net.features(x)), 1e-14)
            # A frozen model may have features of a vector whose head is shorter than the model's own.
            near(flat.frozen(flat.w, flat.buffers).features(x), flat.net.features(x), 1e-14)
            given_head = Head(key, flat.initial_heads[key])
            near(flat.frozen(flat.w, flat.buffers, given_head).logits(x), head(flat.net.features(x)), 1e-14)
        flat.forget_gradients()
        flat.net(x).sum().backward()
        flat.collect_gradients()
        assert bool((flat.g[flat.body_size :] != 0).all())


def test_focal_loss_by_hand() -> None:
    """p_y = 3/4 and 1/2: (1/4)^2 log(4/3) and (1/2)^2 log 2; with weights 3 and 5; gamma 0 is cross-entropy."""
    logits, y = torch.tensor([[math.log(3.0), 0.0], [0.0, 0.0]]), torch.tensor([0, 1])
    first, second = math.log(4 / 3) / 16, math.log(2) / 4
    weights = torch.tensor([3.0, 5.0])
    assert float(focal_loss(logits, y, 2, None)) == pytest.approx((first + second) / 2)
    assert float(focal_loss(logits, y, 2, weights)) == pytest.approx((3 * first + 5 * second) / 2)
    assert float(focal_loss(logits, y, 0, None)) == pytest.approx(float(F.cross_entropy(logits, y)))

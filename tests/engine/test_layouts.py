"""Layouts name every tensor of a vector and are compared strictly."""

import pytest
import torch

from methods.core.vectors import Layout, LayoutError

BODY = ("body.weight", (2, 3), "body")
NORM = ("norm.weight", (2,), "norm")
HEAD = ("classifier.bias", (4,), "head")
LAYOUT = Layout.of([BODY, NORM, HEAD])


def test_layout() -> None:
    assert LAYOUT.mask("norm").nonzero().flatten().tolist() == [6, 7]
    assert (LAYOUT.size, int(LAYOUT.mask("body", "head").sum()), int(LAYOUT.mask().sum())) == (12, 10, 0)
    vector = torch.arange(12.0)
    weight, _, bias = (entry.view(vector) for entry in LAYOUT.entries)
    assert weight.tolist() == [[0, 1, 2], [3, 4, 5]]
    bias.zero_()
    assert vector[8:].tolist() == [0, 0, 0, 0]


def test_channels_last_layout_is_a_permuted_view() -> None:
    """[O, I, h, w] = [2, 3, 1, 2] is stored as O, h, w, I: element (o, i, h, w) at ((o h + h) w + w) I + i."""
    layout = Layout.of([("conv", (2, 3, 1, 2), "body"), ("bias", (2,), "body")], channels_last=True)
    view = layout.entries[0].view(torch.arange(14.0))
    assert view.shape == (2, 3, 1, 2)
    assert view[1, 2, 0, 1] == ((1 * 1 + 0) * 2 + 1) * 3 + 2
    assert view.is_contiguous(memory_format=torch.channels_last)


def test_layouts_are_compared_strictly() -> None:
    LAYOUT.require_same(LAYOUT.to_list(), "sum")
    for tensors, message in (
        (
            [("body.weight", (3, 2), "body"), NORM, HEAD],
            r"sum: got .*'body.weight'.*\(3, 2\).*; .*\(2, 3\)",
        ),
        ([BODY, HEAD, NORM], r"got .*'classifier.bias'.*; expected .*'norm.weight'"),
        ([BODY], r"got None; expected .*'norm.weight'"),
        ([BODY, ("norm.weight", (2,), "body"), HEAD], r"norm.weight"),
    ):
        with pytest.raises(LayoutError, match=message):
            LAYOUT.require_same(Layout.of(tensors).to_list(), "sum")

"""FedDiverse: how a client estimates its matrix of classes and attributes (Algorithms 2-4)."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from feddiverse_cases import TWO, perceptron, rule, spurious
from federations import asked, federation, problem_of, with_rules
from torch import nn

from benchmark.models.networks import Net
from methods.selection.feddiverse import ATTRIBUTE

# The set-up by hand: rate 0, so that every model keeps its first values ----------------------------------------------


def line(classes: int) -> Net:
    """z = (x, 1); logits v z."""
    net = Net(nn.Linear(1, 2), nn.Linear(2, classes, bias=False), 2).double()
    with torch.no_grad():
        net.body.weight.copy_(torch.tensor([[1.0], [0.0]]))
        net.body.bias.copy_(torch.tensor([0.0, 1.0]))
    return net


def estimated(
    net: Net,
    clients: Sequence[tuple[list[float], list[int]]],
    classes: int,
    heads: dict[str, Any],
    **values: Any,
) -> list[Any]:
    """N~^k of each client at rate 0, from heads with the given values (rows of weights on x, and of the bias)."""
    xs = [np.array(x, dtype=float)[:, None] for x, _ in clients]
    problem = problem_of(xs, [np.array(y, dtype=np.int64) for _, y in clients], classes)
    model = federation(problem, with_rules(selection=rule(**values)), net, lr=0.0, batch_size=4)
    for key, (weight, bias) in heads.items():
        vector = [[w, 0.0] for w in weight]
        model.model.initial_heads[key] = torch.tensor([*np.ravel(vector), *bias])
    return asked(model, rule(**values)._matrix)[0].tolist()


def two_class_line() -> Net:
    """Predicts class 1 for x > 0."""
    net = line(2)
    with torch.no_grad():
        net.classifier.weight.copy_(torch.tensor([[0.0, 0.0], [1.0, 0.0]]))
    return net


TELLS_AT_2 = {ATTRIBUTE: ([0.0, 1.0], [0.0, -2.0])}
"""The attribute head answers 1 for x > 2."""


MIXED = ([-1, -1, -1, 3, -1, -1, 1, 3, 5], [0] * 4 + [1] * 5)
OTHER = ([-1, -1, -1, 3, -1, -1, 1, 1, 5], [0] * 4 + [1] * 5)


@pytest.mark.parametrize(
    ("client", "pivot", "expected"),
    [
        # Class 0: three right, one wrong; class 1: three right, two wrong: gaps 2 and 1, so class 1 is the pivot, with
        # the row (3, 2). Class 0's samples go by the head: only 3 is above 2: row (3, 1).
        (MIXED, "smallest_gap", [[3, 1], [3, 2]]),
        # The authors' form takes the first class: its row is (3, 1), and class 1 has 3 and 5 above 2, or 5 alone.
        (MIXED, "first", [[3, 1], [3, 2]]),
        (OTHER, "smallest_gap", [[3, 1], [3, 2]]),
        (OTHER, "first", [[3, 1], [4, 1]]),
        # Both classes have gap 0: class 0 is the pivot, and the head splits class 1 at 2: -1 -1 1 | 3, not (2, 2).
        (([-1, 1, -1, -1, 3, 1], [0, 0, 1, 1, 1, 1]), "smallest_gap", [[1, 1], [3, 1]]),
        (([-1, 1, -1, 1, 3, 5], [0, 0, 1, 1, 1, 1]), "smallest_gap", [[1, 1], [2, 2]]),
        # Class 0 has no samples: its gap 0 does not count.
        (([-1, 1, 1], [1, 1, 1]), "smallest_gap", [[0, 0], [2, 1]]),
        # All right (or all wrong) in the pivot class: everybody is of the majority (minority).
        (([-1, -5, 1, 3, 5, 5], [0, 0, 1, 1, 1, 1]), "smallest_gap", [[2, 0], [4, 0]]),
        (([1, 5, -1, -3, -5, -5], [0, 0, 1, 1, 1, 1]), "smallest_gap", [[0, 2], [0, 4]]),
        (([], []), "smallest_gap", [[0, 0], [0, 0]]),
    ],
)
def test_matrix_of_two_classes_by_hand(client: Any, pivot: str, expected: list) -> None:
    clients = [([1.0], [1]), client]  # somebody must have samples
    assert estimated(two_class_line(), clients, 2, TELLS_AT_2, pivot=pivot)[1] == expected


def test_matrix_of_three_classes_by_hand() -> None:
    """Only the answers of class y's own classifier on its own samples count.

    Class 0 at -2 -2 -2 3: 3 right, 1 wrong, gap 2. Class 1 at 1 1 3 -1: gap 2. Class 2 at 5 5 1: gap 1, the pivot.
    The head puts 3 above 2: class 0 (3, 1), class 1 (3, 1).
    """
    heads = TELLS_AT_2 | {
        "feddiverse/class0": ([0.0, -1.0], [0.0, -1.0]),  # "mine" for x < -1
        "feddiverse/class1": ([0.0, 1.0], [0.0, 0.0]),  # "mine" for x > 0
        "feddiverse/class2": ([0.0, 1.0], [0.0, -4.0]),  # "mine" for x > 4
    }
    clients: Any = [([-2, -2, -2, 3, 1, 1, 3, -1, 5, 5, 1], [0] * 4 + [1] * 4 + [2] * 3), ([], [])]
    assert estimated(line(3), clients, 3, heads) == [[[3, 1], [3, 1], [2, 1]], [[0, 0]] * 3]
    first = estimated(line(3), clients[:1], 3, heads, pivot="first")
    assert first == [[[3, 1], [3, 1], [1, 2]]]


# The set-up as training -----------------------------------------------------------------------------------------


def up_to_a_swap(found: np.ndarray, truth: np.ndarray) -> float:
    """Share of samples in wrong cells; the two attributes have no names."""
    wrong = [np.abs(found[:, order] - truth).sum() / 2 for order in ([0, 1], [1, 0])]
    return float(min(wrong) / truth.sum())


THREE = [[[60, 6], [6, 60], [60, 6]], [[6, 60], [60, 6], [6, 60]]]


@pytest.mark.parametrize("matrices", [TWO, THREE])
def test_the_estimate_finds_the_minority_groups(matrices: list) -> None:
    """Where the attribute is easier to see than the class, the biased model errs on the minority of each class.

    A matrix that ignores the attribute has 10 % to 25 % of the samples in wrong cells.
    """
    problem, counts = spurious(matrices)
    method = with_rules(selection=rule())
    model = federation(problem, method, perceptron(counts.shape[1]), lr=0.1, batch_size=28, order=None)
    found, _ = asked(model, rule()._matrix)
    assert max(up_to_a_swap(m, truth) for m, truth in zip(found, counts, strict=True)) < 0.05
    assert np.array_equal(found.sum(2), counts.sum(2))

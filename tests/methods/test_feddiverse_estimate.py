"""FedDiverse: how a client estimates its matrix of classes and attributes (Algorithms 2-4)."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from feddiverse_cases import TWO, USUAL, perceptron, rule, spurious
from federations import Recorder, asked, federation, problem_of, run, with_rules
from torch import Tensor, nn

from benchmark.models.networks import Net
from methods.core.contexts import Phase
from methods.core.rules import ClientRule
from methods.selection.feddiverse import ATTRIBUTE, FedDiverse
from methods.shared.triplets import Balanced

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


class Shifted:
    """A probe of three classes whose biased model of class c moves features by ``shifts[c]``: x + shift.

    One-vs-rest classifiers say "mine" where the moved x is above 0; the attribute head answers 1 above 10.
    """

    client, num_classes, body_size = 0, 3, 1
    w = torch.zeros(1)

    def __init__(self, xs: list[float], ys: list[int], shifts: list[float]) -> None:
        self.shifts = shifts
        x, y = torch.tensor(xs), torch.tensor(ys)
        self.data = SimpleNamespace(y=y, batches=lambda: iter([(x[:2], y[:2]), (x[2:], y[2:])]))
        self.heads = dict.fromkeys([ATTRIBUTE, *(f"feddiverse/class{c}" for c in range(3))], torch.zeros(1))

    def train(
        self, rules: Any, phase: Phase, purpose: str, w: Any = None, head: Any = None, labels: Any = None
    ) -> Tensor:
        if purpose == "feddiverse/attribute":
            assert phase.groups == ("head",)
            assert float(w[0]) == self.shifts[0]  # the biased body of the pivot class, class 0
            return torch.cat([w[:1], torch.tensor([10.0])])
        return torch.tensor([self.shifts[int(purpose[-1])], 0.0])

    def model(self, w: Tensor, head: Any = None) -> Any:
        def logits(x: Tensor) -> Tensor:
            z = x + w[0]
            return torch.stack([torch.zeros_like(z), z - head.vector[0]], dim=1)

        return SimpleNamespace(logits=logits)


@pytest.mark.parametrize(
    ("values", "last"), [({}, [2, 0]), ({"body": "own"}, [0, 2]), ({"variant": "reference"}, [0, 2])]
)
def test_whose_features_the_attribute_head_reads(values: dict, last: list[int]) -> None:
    """Class 0 is the pivot (one right, one wrong). Class 2 at 5, 6 is above 10 only under its own shift of 9."""
    probe: Any = Shifted([1.0, -1.0, 1.0, 1.0, 5.0, 6.0], [0, 0, 1, 1, 2, 2], [0.5, 0.0, 9.0])
    assert rule(**values)._matrix(probe).tolist() == [[1, 1], [2, 0], last]


# The set-up as training -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("extra", "tau_b", "tau_a"), [(None, 5, 4), (True, 6, 5)])
def test_numbers_of_steps_and_samples(extra: bool | None, tau_b: int, tau_a: int) -> None:
    """Epochs of 7 + 3 samples are batches of 4, 4, 2; the head's epochs are the 3 samples of the pivot class.

    Class 1 (x = 1, 2, -3) is right for 1, 2 and wrong for -3 under a model that says 1 for x > 0.
    """
    recorder = Recorder()

    class Recording(FedDiverse):
        def _rules(self, *rules: ClientRule) -> list[ClientRule]:
            return [*super()._rules(*rules), recorder]

    values = USUAL | {"setup_sampling": "uniform", "tau_b": 5, "tau_a": 4, "extra_step": extra}
    x = np.array([-1, -2, -3, -4, -5, -6, -7, 1, 2, -3.0])[:, None]
    problem = problem_of([x], [np.array([0] * 7 + [1] * 3)], 2)
    method = with_rules(selection=Recording(**values))
    run(federation(problem, method, two_class_line(), lr=1e-9, batch_size=4, rounds=2))
    batches = [(x.ravel().tolist(), y.tolist()) for _, _, x, y, _ in recorder.batches]
    assert len(batches) == tau_b + tau_a
    assert [len(y) for _, y in batches[:5]] == [4, 4, 2, 4, 4]
    # uniform: every sample once before any comes again, with its own label
    seen = [v for xs, _ in batches[:3] for v in xs]
    assert sorted(seen) == [-7, -6, -5, -4, -3, -3, -2, -1, 1, 2]
    for xs, ys in batches[tau_b:]:
        # 0 is the majority (right), 1 the minority (wrong) of the pivot class
        assert sorted(zip(xs, ys, strict=True)) == [(-3, 1), (1, 0), (2, 0)]


def test_the_attribute_head_trains_on_features_in_evaluation_mode() -> None:
    """Algorithm 3 fixes the feature extractor: no dropout. Under the biased model features are 0 or doubled."""
    recorder = Recorder()

    class Recording(FedDiverse):
        def _rules(self, *rules: ClientRule) -> list[ClientRule]:
            return [*super()._rules(*rules), recorder]

    net = two_class_line()
    net.body = nn.Sequential(net.body, nn.Dropout(0.5))
    x = np.array([-1, -2, -3, -4, -5, -6, -7, 1, 2, -3.0])[:, None]
    problem = problem_of([x], [np.array([0] * 7 + [1] * 3)], 2)
    chooser = Recording(**(USUAL | {"tau_b": 5, "tau_a": 4}))
    run(federation(problem, with_rules(selection=chooser), net, lr=1e-9, batch_size=4, rounds=2))
    as_it_is = [torch.cat([x, torch.ones_like(x)], 1) for _, _, x, _, _ in recorder.batches]
    shares = [z / whole for (*_, z), whole in zip(recorder.batches, as_it_is, strict=True)]
    rounded = [set(share.round(decimals=4).flatten().tolist()) for share in shares]
    assert set.union(*rounded[:5]) == {0, 2}
    assert rounded[5:] == [{1.0}] * 4


def test_balanced_weights_by_hand() -> None:
    ctx: Any = SimpleNamespace(data=SimpleNamespace(y=torch.tensor([2, 0, 2, 2])))
    assert Balanced().sample_weights(ctx).tolist() == [1 / 3, 1, 1 / 3, 1 / 3]


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

"""FedSDC: the vote of heads, and how FedSDC+ ranks them."""

from __future__ import annotations

import random  # noqa: TID251 -- the authors' generator, replayed from their seeds
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from federations import federation, problem_of
from torch import Tensor, nn

from benchmark.config.compose import compose, load_group, resolve
from benchmark.engine.evaluation import EvaluationSet
from benchmark.errors import ConfigError
from benchmark.models.networks import Net
from methods.core.build import build
from methods.core.errors import MethodError
from methods.fedsdc import best_heads, head_scores, majority, rho_ladder

GOLDEN = Path(__file__).parents[1] / "golden"
CASES = range(5)


def fedsdc(
    name: str = "fedsdc", prediction: Mapping[str, Any] | None = None, **client: Any
) -> dict[str, Any]:
    """conf/method/<name>.yaml with these values of the client rule and the prediction on top."""
    config = load_group("method", name)
    config["client"]["fedsdc"] |= client
    config["prediction"] |= prediction or {}
    return config


# Golden: votes and widths ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def votes() -> dict[str, np.ndarray]:
    return dict(np.load(GOLDEN / "fedsdc_vote.npz"))


@pytest.mark.parametrize("case", CASES)
def test_vote_of_the_authors(votes: dict[str, np.ndarray], case: int) -> None:
    logits = torch.from_numpy(votes[f"c{case}_logits"])
    np.testing.assert_array_equal(majority(logits).argmax(1), votes[f"c{case}_pred_code"])


@pytest.mark.parametrize("case", CASES)
def test_sparse_vote_of_the_authors(votes: dict[str, np.ndarray], case: int) -> None:
    """Heads ranked by balanced accuracy, the best ceil(.3 H) vote; also where labels come in several batches."""
    logits, labels = (torch.from_numpy(votes[f"c{case}_{name}"]) for name in ("logits", "labels"))
    scores = head_scores(zip(logits.split(5, 1), labels.split(5), strict=True), "balanced_accuracy")
    np.testing.assert_allclose(scores, votes[f"c{case}_head_bacc_code"], rtol=0, atol=1e-12)
    best = best_heads(scores, float(votes[f"c{case}_sparse_gamma"]))
    assert best == votes[f"c{case}_sparse_heads_code"].tolist()
    answer = majority(logits[best]).argmax(1)
    np.testing.assert_array_equal(answer, votes[f"c{case}_sparse_pred_code"])
    micro_f1 = (answer == labels).double().mean()
    assert float(micro_f1) == pytest.approx(float(votes[f"c{case}_sparse_micro_f1_code"]), abs=1e-12)


@pytest.mark.parametrize("case", CASES)
def test_micro_f1_of_each_head(votes: dict[str, np.ndarray], case: int) -> None:
    """2 TP / (2 TP + FP + FN) over all classes, counted one sample at a time."""
    logits, labels = votes[f"c{case}_logits"], votes[f"c{case}_labels"]
    expected = []
    for head in logits:
        tp = fp = fn = 0
        for row, label in zip(head, labels, strict=True):
            for c in range(len(row)):
                says, is_it = int(np.argmax(row)) == c, label == c
                tp, fp, fn = tp + (says and is_it), fp + (says and not is_it), fn + (is_it and not says)
        expected.append(2 * tp / (2 * tp + fp + fn))
    scores = head_scores([(torch.from_numpy(logits), torch.from_numpy(labels))], "micro_f1")
    np.testing.assert_allclose(scores, expected, rtol=0, atol=1e-12)


def test_ties_by_hand() -> None:
    """Three heads, one sample each time: [H = 3, B = 4, C = 3]."""
    logits = torch.tensor(
        [
            # 2:1 for class 1, though class 0 has by far the largest sum;
            # 1:1:1, sums (6, 5, 7): class 2;
            # equal logits inside the heads: each votes for its lowest class, 1, 1 and 0, so class 1;
            # 1:1:1, sums (5, 5, 5): the lowest class.
            [[0, 1, 0], [4, 1, 2], [0, 3, 3], [3, 1, 1]],
            [[0, 1, 0], [1, 3, 1], [0, 2, 2], [1, 3, 1]],
            [[9, 0, 0], [1, 1, 4], [1, 1, 0], [1, 1, 3]],
        ],
        dtype=torch.float64,
    )
    assert majority(logits).argmax(1).tolist() == [1, 2, 1, 0]
    # A 1:1 tie of classes 0 and 1 whose sums are (5, 5, 8): class 2 wins without a vote.
    two = torch.tensor([[[5.0, 0.0, 4.0]], [[0.0, 5.0, 4.0]]])
    assert majority(two).argmax(1).tolist() == [2]


def test_best_heads_by_hand() -> None:
    """Stable and descending; ceil(gamma H), also where the product is a hair above a whole number."""
    scores = [0.5, 0.75, 0.5, 0.75, 1.0]
    assert best_heads(scores, 0.3) == [4, 1]  # ceil(1.5)
    assert best_heads(scores, 0.7) == [4, 1, 3, 0]  # ceil(3.5)
    assert best_heads(scores, 1.0) == [4, 1, 3, 0, 2]
    assert best_heads(scores, 0.01) == [4]
    halves = [k % 2 for k in range(100)]  # long enough for a sort that is not stable to show
    assert best_heads(halves, 0.5) == list(range(1, 100, 2))
    assert len(best_heads(range(100), 0.07)) == 7  # 0.07 * 100 = 7.000000000000001


@pytest.mark.parametrize("seed", [0, 1, 42])
@pytest.mark.parametrize("case", ["c10of15", "c15noshuffle", "c5of5", "c10of10"])
def test_widths_of_the_authors(case: str, seed: int) -> None:
    """rho and widths from the draws of Python's own generator, which the authors use; the heads have these widths."""
    g = dict(np.load(GOLDEN / "fedsdc_rho_ladder.npz"))
    count = int(g[f"{case}_H"])
    draws = random.Random(seed)
    uniform = [draws.random() for _ in range(count)]
    rho = rho_ladder(float(g["rho_start"]), float(g["rho_end"]), uniform)
    np.testing.assert_allclose(rho, g[f"{case}_s{seed}_rho_code"], rtol=0, atol=1e-12)
    np.testing.assert_array_equal(np.floor(rho * 2048), g[f"{case}_s{seed}_width2048_code"])

    class Replayed:
        def random(self, size: int) -> np.ndarray:
            assert size == count
            return np.array(uniform)

    rule = build(fedsdc(H=count)).client[0]
    heads = rule.heads(
        512,
        3,
        lambda purpose, *ids: np.random.default_rng(*ids) if ids else Replayed(),  # type: ignore[return-value]
    )
    widths = [head[0].out_features for head in heads.values()]  # type: ignore[index]
    np.testing.assert_array_equal(widths, g[f"{case}_s{seed}_width512_code"])


# Prediction ------------------------------------------------------------------------------------------------------


class Counted(nn.Linear):
    """Counts its passes."""

    passes = 0

    def forward(self, x: Tensor) -> Tensor:
        """As nn.Linear."""
        self.passes += 1
        return super().forward(x)


def labelled(xs: Sequence[float], ys: Sequence[int], batch: int = 3) -> EvaluationSet:
    x = torch.tensor(xs, dtype=torch.float64)[:, None]
    return EvaluationSet(x, torch.tensor(ys), None, 3, 0, lambda images: images, batch_size=batch)


ROWS = ((0.0, 0.0, 1.0), (1.0, 0.0, -1.0), (0.0, 1.0, 0.0), (1.0, 0.0, 0.0), (0.0, 0.0, 1.0))
"""Heads v [3] of logits v x. For x > 0 they say 2, 0, 1, 0, 2; for x < 0 they say 0, 2, 0, 1, 0."""


def voting(
    prediction: Mapping[str, Any], validation: EvaluationSet | None, train: Sequence[int] = (0,)
) -> tuple[dict[str, float], Counted]:
    """Accuracy on the test set x = 1, 1, 1, -1, y = 0, 0, 2, 0 (per class too), of heads ROWS on the body z = x."""
    problem = problem_of(
        [np.ones((1, 1))] * 4 + [np.ones((len(train), 1))],
        [np.array([train[0]])] * 4 + [np.array(train)],
        3,
    )
    sets = {"test": labelled([1, 1, 1, -1], [0, 0, 2, 0])}
    if validation is not None:
        sets["validation"] = validation
    body = Counted(1, 1, bias=False)
    net = Net(body, nn.Linear(1, 3, bias=False), 1).double()
    config = fedsdc("fedsdc_plus", prediction, diversity=False)
    model = federation(replace(problem, evaluation_sets=sets), config, net, w0=np.array([1.0, 0, 0, 0]))
    state = model.initial_state()
    # A head is weights and biases: v and 0.
    heads = {f"fedsdc/{s}": torch.tensor([*v, 0, 0, 0], dtype=torch.float64) for s, v in enumerate(ROWS)}
    rules = {"fedsdc": state.rules["fedsdc"] | {"heads": heads}}
    body.passes = 0
    records = model.evaluate(replace(state, rules=rules))
    assert not any(r.metric == "loss" for r in records)
    return {r.group: r.value for r in records if (r.split, r.metric) == ("test", "accuracy")}, body


def test_all_heads_vote_and_the_body_runs_once_per_batch() -> None:
    """x = 1: votes 2, 0, 1, 0, 2: classes 0 and 2 tie, sums (2, 1, 1): class 0, right, right, wrong. x = -1: votes
    0, 2, 0, 1, 0: class 0, right. Four samples in batches of 3 are two passes through the body, whatever H is."""
    found, body = voting({"gamma": 1.0}, None)
    assert found == {"all": 0.75, "class=0": 1.0, "class=2": 0.0}
    assert body.passes == 2


@pytest.mark.parametrize(
    ("xs", "ys", "gamma", "expected"),
    [
        # Heads 1 and 3 are right on both: class 0 for x = 1; x = -1: votes 2, 1, sums (-2, 0, 1): class 2, wrong.
        ([1, 2], [0, 0], 0.3, {"all": 0.5, "class=0": 2 / 3, "class=2": 0.0}),
        # Heads 0 and 4, class 2 for x = 1 and class 0 for x = -1: wrong, wrong, right, right.
        ([1, 2], [2, 2], 0.3, {"all": 0.5, "class=0": 1 / 3, "class=2": 1.0}),
        # Only head 2 is right, of the others the first comes in: (2, 0): x = 1: votes 1, 2, sums (0, 1, 1): class 1,
        # all three wrong; x = -1: class 0, right.
        ([1, 2], [1, 1], 0.3, {"all": 0.25, "class=0": 1 / 3, "class=2": 0.0}),
        # The best one alone: head 2, class 1 or 0.
        ([1, 2], [1, 1], 0.1, {"all": 0.25, "class=0": 1 / 3, "class=2": 0.0}),
        # Three of five: heads 0, 4, 1: class 2, and for x = -1 class 0.
        ([1, 2], [2, 2], 0.5, {"all": 0.5, "class=0": 1 / 3, "class=2": 1.0}),
    ],
)
def test_heads_are_ranked_on_the_validation_split(
    xs: list[float], ys: list[int], gamma: float, expected: dict[str, float]
) -> None:
    """The test set, where heads 1 and 3 are right most often at x = 1, has no say; the labels of validation decide."""
    assert voting({"gamma": gamma}, labelled(xs, ys))[0] == pytest.approx(expected)


def test_micro_f1_and_balanced_accuracy_choose_differently() -> None:
    """Validation: x = 1 six times with label 0 and four times with label 2, x = -1 once with label 0.

    Right answers of the heads: 4 + 1, 6, 0 + 1, 6, 4 + 1 of 11, so micro-F1 ranks 1 and 3 first. Recalls of class 0
    (of 7) and class 2 (of 4): (1, 4), (6, 0), (1, 0), (6, 0), (1, 4), so balanced accuracy ranks 0 and 4 first."""
    validation = labelled([1.0] * 10 + [-1.0], [0] * 6 + [2] * 4 + [0])
    micro, balanced = (
        voting({"gamma": 0.3, "metric": metric}, validation)[0]
        for metric in ("micro_f1", "balanced_accuracy")
    )
    assert micro == pytest.approx({"all": 0.5, "class=0": 2 / 3, "class=2": 0.0})
    assert balanced == pytest.approx({"all": 0.5, "class=0": 1 / 3, "class=2": 1.0})


def test_the_code_ranks_on_all_clients_training_data() -> None:
    """All training data say class 2 at x = 1, validation class 0: heads 0 and 4 with the reference variant or the
    switch alone, heads 1 and 3 otherwise."""
    validation = labelled([1, 2], [0, 0])
    by_train = {"all": 0.5, "class=0": 1 / 3, "class=2": 1.0}
    by_validation = {"all": 0.5, "class=0": 2 / 3, "class=2": 0.0}
    for prediction, expected in (
        ({"variant": "reference"}, by_train),
        ({"ranking": "train_reference"}, by_train),
        ({"variant": "reference", "ranking": "validation"}, by_validation),
        ({}, by_validation),
    ):
        assert voting(prediction, validation, train=(2,))[0] == pytest.approx(expected), prediction


def test_ranking_needs_a_validation_split_before_anything_trains() -> None:
    def needs(name: str, validation: float) -> None:
        resolve(compose("quick", {"method": name, "evaluation": {"validation": validation}})).build_method()

    with pytest.raises(ConfigError, match=r"evaluation\.validation: .*'vote'"):
        needs("fedsdc_plus", 0.0)
    needs("fedsdc_plus", 0.1)
    needs("fedsdc", 0.0)


def test_an_empty_validation_split_is_noticed() -> None:
    """Where it turns out empty in spite of all: an error, not a ranking by chance."""
    with pytest.raises(MethodError, match=r"set evaluation\.validation"):
        voting({}, None)

"""FedSDC: the vote of heads, and how FedSDC+ ranks them."""

import random  # noqa: TID251 -- the authors' generator, replayed from their seeds
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from federations import federation, near, problem_of
from golden_cases import fedsdc, stored
from torch import Tensor, nn

from benchmark.config.compose import compose, resolve
from benchmark.errors import ConfigError
from benchmark.models.networks import Net
from benchmark.runs.build import build_method
from methods.core.method import build
from methods.core.samples import Samples
from methods.fedsdc import best_heads, head_scores, majority, rho_ladder

VOTES = stored("fedsdc_vote")


@pytest.mark.parametrize("case", range(5))
def test_votes_of_the_authors(case: int) -> None:
    """All heads vote; or the best ceil(.3 H) by balanced accuracy, also where labels come in several batches."""
    logits, labels = (torch.from_numpy(VOTES[f"c{case}_{name}"]) for name in ("logits", "labels"))
    np.testing.assert_array_equal(majority(logits).argmax(1), VOTES[f"c{case}_pred_code"])
    scores = head_scores(zip(logits.split(5, 1), labels.split(5), strict=True), "balanced_accuracy")
    near(scores, VOTES[f"c{case}_head_bacc_code"])
    best = best_heads(scores, float(VOTES[f"c{case}_sparse_gamma"]))
    assert best == VOTES[f"c{case}_sparse_heads_code"].tolist()
    answer = majority(logits[best]).argmax(1)
    np.testing.assert_array_equal(answer, VOTES[f"c{case}_sparse_pred_code"])
    near((answer == labels).double().mean(), VOTES[f"c{case}_sparse_micro_f1_code"])
    # Micro-F1 is 2 TP / (2 TP + FP + FN), each summed over the classes.
    says, truth = (np.eye(logits.shape[2], dtype=bool)[a] for a in (logits.argmax(2), labels))
    tp, fp, fn = ((a & b).sum((1, 2)) for a, b in ((says, truth), (says, ~truth), (~says, truth)))
    near(head_scores([(logits, labels)], "micro_f1"), 2 * tp / (2 * tp + fp + fn))


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
    g = stored("fedsdc_rho_ladder")
    count = int(g[f"{case}_H"])
    draws = random.Random(seed)
    uniform = [draws.random() for _ in range(count)]
    rho = rho_ladder(float(g["rho_start"]), float(g["rho_end"]), uniform)
    near(rho, g[f"{case}_s{seed}_rho_code"])
    np.testing.assert_array_equal(np.floor(rho * 2048), g[f"{case}_s{seed}_width2048_code"])

    class Replayed:
        def random(self, size: int) -> np.ndarray:
            assert size == count
            return np.array(uniform)

    rule = build(fedsdc(H=count)).client[0]
    heads = rule.heads(
        512, 3, count, lambda purpose, *ids: np.random.default_rng(*ids) if ids else Replayed()
    )
    widths = [head[0].out_features for head in heads.values()]
    np.testing.assert_array_equal(widths, g[f"{case}_s{seed}_width512_code"])


class Counted(nn.Linear):
    """Writes down the samples of its passes."""

    passes = []

    def forward(self, x: Tensor) -> Tensor:
        self.passes.append(len(x))
        return super().forward(x)


def labelled(xs: Sequence[float], ys: Sequence[int]) -> Samples:
    x = torch.tensor(xs, dtype=torch.float64)[:, None]
    return Samples(x, torch.tensor(ys), lambda images: images, batch_size=3)


ROWS = ((0.0, 0.0, 1.0), (1.0, 0.0, -1.0), (0.0, 1.0, 0.0), (1.0, 0.0, 0.0), (0.0, 0.0, 1.0))
"""Heads v [3] of logits v x. For x > 0 they say 2, 0, 1, 0, 2; for x < 0 they say 0, 2, 0, 1, 0."""

HEADS_1_3 = {"all": 0.5, "class=0": 2 / 3, "class=2": 0.0}
"""They say class 0 for x = 1; for x = -1 2 and 1 tie, sums (-2, 0, 1): class 2, wrong."""

HEADS_0_4 = {"all": 0.5, "class=0": 1 / 3, "class=2": 1.0}
"""They say class 2 for x = 1 and class 0 for x = -1: wrong, wrong, right, right. With head 1 they still win."""


def voting(
    prediction: Mapping[str, Any], validation: Samples | None, train: int = 0
) -> tuple[dict[str, float], Counted]:
    """Accuracy on the test set x = 1, 1, 1, -1, y = 0, 0, 2, 0 (per class too), of heads ROWS on the body z = x."""
    problem = problem_of([np.ones((1, 1))] * 5, [np.array([train])] * 5, 3)
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
    body.passes.clear()
    records = model.evaluate(replace(state, rules={"fedsdc": state.rules["fedsdc"] | {"heads": heads}}))
    assert not any(r.metric == "loss" for r in records)
    return {r.group: r.value for r in records if (r.split, r.metric) == ("test", "accuracy")}, body


REFERENCE = {"variant": "reference"}
LARGE = ([1.0] * 10 + [-1.0], [0] * 6 + [2] * 4 + [0])
"""Right answers of the heads: 4 + 1, 6, 0 + 1, 6, 4 + 1 of 11, so micro-F1 ranks 1 and 3 first. Recalls of class 0 (of
7) and class 2 (of 4): (1, 4), (6, 0), (1, 0), (6, 0), (1, 4), so balanced accuracy ranks 0 and 4 first."""


@pytest.mark.parametrize(
    ("prediction", "validation", "train", "expected"),
    [
        ({}, ([1, 2], [0, 0]), 0, HEADS_1_3),
        ({}, ([1, 2], [2, 2]), 0, HEADS_0_4),
        # Only head 2 is right, of the others the first comes in: (2, 0): x = 1: votes 1, 2, sums (0, 1, 1): class 1,
        # all three wrong; x = -1: class 0, right.
        ({}, ([1, 2], [1, 1]), 0, {"all": 0.25, "class=0": 1 / 3, "class=2": 0.0}),
        ({"gamma": 0.5}, ([1, 2], [2, 2]), 0, HEADS_0_4),  # three of five: heads 0, 4, 1
        ({"metric": "micro_f1"}, LARGE, 0, HEADS_1_3),
        ({"metric": "balanced_accuracy"}, LARGE, 0, HEADS_0_4),
        # All training data say class 2 at x = 1, validation class 0: the code ranks on all clients' training data.
        (REFERENCE, ([1, 2], [0, 0]), 2, HEADS_0_4),
        ({"ranking": "train_reference"}, ([1, 2], [0, 0]), 2, HEADS_0_4),
        (REFERENCE | {"ranking": "validation"}, ([1, 2], [0, 0]), 2, HEADS_1_3),
        ({}, ([1, 2], [0, 0]), 2, HEADS_1_3),
    ],
)
def test_how_heads_are_ranked(prediction: dict, validation: tuple, train: int, expected: dict) -> None:
    """The test set, where heads 1 and 3 are right most often at x = 1, has no say."""
    found, _ = voting({"gamma": 0.3} | prediction, labelled(*validation), train)
    assert found == pytest.approx(expected)


def test_ranking_needs_a_validation_split_before_anything_trains() -> None:
    def needs(name: str, validation: float) -> None:
        build_method(resolve(compose("quick", {"method": name, "evaluation": {"validation": validation}})))

    with pytest.raises(ConfigError, match=r"evaluation\.validation: .*'vote'"):
        needs("fedsdc_plus", 0.0)
    needs("fedsdc_plus", 0.1)
    needs("fedsdc", 0.0)

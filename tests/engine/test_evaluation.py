"""Metrics of a small confusion matrix, counted by hand."""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import sklearn.metrics
import torch
from federations import federation, problem_of, run
from torch import Tensor, nn

from benchmark.engine.evaluation import (
    Answers,
    ClientSamples,
    evaluate,
    medical_metrics,
    metrics,
    over_clients,
    predict,
)
from benchmark.errors import UserError
from benchmark.experiments.metrics import METRICS
from benchmark.metrics import RECORDED, OwnMetric
from benchmark.models.networks import Net
from methods.core.samples import Samples

# Ten samples of three classes and two attributes; the answer, and right (1) or not.
#            class 0         class 1            class 2
LABELS = np.array([0, 0, 0, 0, 1, 1, 1, 1, 1, 2])
ATTRIBUTES = np.array([0, 0, 1, 1, 0, 0, 0, 0, 1, 1])
PREDICTED = np.array([0, 0, 0, 2, 1, 1, 0, 2, 0, 2])
#                     1  1  1  0  1  1  0  0  0  1   -> 6 of 10


ANSWERS = Answers(PREDICTED, np.arange(10, dtype=np.float32), np.eye(3)[PREDICTED])


def test_overall_and_per_class() -> None:
    """Recalls 3/4, 2/5, 1/1: mean 43/60; the worst class is 1.

    F1 of the summed counts: true positives 6; false positives and negatives 4 each; 12/(12 + 8) = .6. Classes 0, 1, 2
    have 3, 2, 1 true positives, 2, 0, 2 false positives, 1, 3, 0 false negatives and 4, 5, 7 true negatives.
    Scores are 0 or 1, so that the area under a ROC curve is the mean of sensitivity and specificity.
    """
    found = metrics(ANSWERS, True, LABELS, None, 3, 0)
    sensitivity, specificity = (3 / 4, 2 / 5, 1.0), (4 / 6, 1.0, 7 / 9)
    assert found == pytest.approx(
        {
            ("all", "accuracy"): 0.6,
            ("all", "micro_f1"): 0.6,
            ("all", "balanced_accuracy"): 43 / 60,
            ("all", "worst_group_accuracy"): 0.4,
            ("all", "loss"): 4.5,
            ("all", "macro_f1"): (6 / 9 + 4 / 7 + 2 / 4) / 3,
            ("all", "sensitivity"): sum(sensitivity) / 3,
            ("all", "specificity"): sum(specificity) / 3,
            ("all", "auroc"): (sum(sensitivity) + sum(specificity)) / 6,
            **{(f"class={c}", "accuracy"): value for c, value in enumerate(sensitivity)},
            **{(f"class={c}", "sensitivity"): value for c, value in enumerate(sensitivity)},
            **{(f"class={c}", "specificity"): value for c, value in enumerate(specificity)},
        }
    )


def test_area_under_the_curve() -> None:
    """Of the six pairs of a sample of class 1 and another, scores order five as they should be and tie in none.

    A third class that is neither present nor predicted changes nothing.
    """
    labels = np.array([1, 1, 0, 0, 0])
    positive = np.array([0.9, 0.4, 0.5, 0.2, 0.1])
    for classes in (2, 3):
        scores = np.stack([1 - positive, positive, 0 * positive][:classes], 1)
        found = medical_metrics(scores.argmax(1), scores, labels, classes)
        assert found["all", "auroc"] == pytest.approx(5 / 6)
        assert ("class=2", "specificity") not in found


@pytest.mark.parametrize("classes", [2, 5])
def test_medical_metrics_are_those_of_scikit_learn(classes: int) -> None:
    """On random answers with ties, where the last class is neither present nor predicted."""
    rng = np.random.default_rng(0)
    labels, scores = rng.integers(classes, size=60), rng.integers(8, size=(60, classes + 1)).astype(float)
    scores[:, classes] = -1
    predicted = scores.argmax(1)
    found = medical_metrics(predicted, scores, labels, classes + 1)
    counts = sklearn.metrics.multilabel_confusion_matrix(labels, predicted, labels=range(classes))
    areas = [sklearn.metrics.roc_auc_score(labels == c, scores[:, c]) for c in range(classes)]
    expected = {
        ("all", "macro_f1"): sklearn.metrics.f1_score(labels, predicted, average="macro"),
        ("all", "auroc"): np.mean(areas),
    }
    recalls, specificities = (counts[:, k, k] / counts[:, k].sum(1) for k in (1, 0))
    for name, values in (("sensitivity", recalls), ("specificity", specificities)):
        expected |= {("all", name): values.mean(), **{(f"class={c}", name): v for c, v in enumerate(values)}}
    assert found == pytest.approx(expected)


def test_what_one_class_lacks() -> None:
    """A set of one class has sensitivity and F1, a vote no area, and scores that are not numbers none either."""
    one = medical_metrics(np.array([1, 1]), np.array([[0.1, 0.9], [0.2, 0.8]]), np.array([1, 1]), 2)
    assert one == {("all", "macro_f1"): 1.0, ("all", "sensitivity"): 1.0, ("class=1", "sensitivity"): 1.0}
    labels = np.array([0, 1])
    for scores in (None, np.full((2, 2), np.nan)):
        assert ("all", "auroc") not in medical_metrics(labels, scores, labels, 2)
    assert not {name for _, name in metrics(ANSWERS, False, LABELS, None, 3, 0)} & {"auroc", "loss"}


@pytest.mark.parametrize(("logits", "values", "found"), [
    (True, (0.25, 0.75), {"mine": 0.5, "undefined_once": None}),
    (False, (0.25, 0.75), {"mine": None}),
])  # fmt: skip
def test_own_metrics(logits: bool, values: tuple[float, float], found: dict[str, float | None]) -> None:
    """The mean over two personal models, without one that a model lacks; a vote has no scores."""
    given = iter(values)
    mine = OwnMetric("mine", "Mine", True, lambda scores, labels: next(given) * float(scores.sum()) / 2)
    once = OwnMetric(
        "undefined_once", "", True, lambda scores, labels: math.nan if scores[0, 0] > 0.5 else 1.0
    )
    data = Samples(torch.zeros(2, 1), torch.tensor([0, 1]), lambda x: x)
    predictors = [lambda x, s=s: s * torch.eye(2)[: len(x)] for s in (2.0, -2.0)]
    values_of = evaluate(predictors, data, 2, 0, logits, [mine, once])
    assert {name: values_of.get(("all", name)) for name in found} == pytest.approx(found)


def test_an_own_metric_that_is_no_number() -> None:
    with pytest.raises(UserError, match="metric mine: got 'high'; expected a number"):
        OwnMetric("mine", "Mine", True, lambda scores, labels: "high")(np.ones((1, 1)), np.zeros(1))


def test_all_that_is_recorded_has_a_name() -> None:
    assert {name for _, name in metrics(ANSWERS, True, LABELS, ATTRIBUTES, 3, 2)} == set(RECORDED)
    assert set(RECORDED) <= METRICS.keys()


def test_groups() -> None:
    """Class x attribute: (0,0) 2/2, (0,1) 1/2, (1,0) 2/4, (1,1) 0/1, (2,0) none, (2,1) 1/1; attributes 4/6 and 2/4."""
    found = metrics(ANSWERS, False, LABELS, ATTRIBUTES, 3, 2)
    groups = {name: value for (name, metric), value in found.items() if "," in name and metric == "accuracy"}
    assert groups == {
        "class=0,attribute=0": 1.0,
        "class=0,attribute=1": 0.5,
        "class=1,attribute=0": 0.5,
        "class=1,attribute=1": 0.0,
        "class=2,attribute=1": 1.0,
    }
    assert found["all", "worst_group_accuracy"] == 0.0
    assert found["attribute=0", "accuracy"] == pytest.approx(4 / 6)
    assert found["attribute=1", "accuracy"] == 0.5
    assert found["class=1", "accuracy"] == 0.4  # still there, beside the groups
    assert found["all", "balanced_accuracy"] == pytest.approx(43 / 60)
    # A fourth class and a third attribute that have no samples appear in no record and spoil no mean.
    assert metrics(ANSWERS, False, LABELS, ATTRIBUTES, 4, 3) == found
    assert not any(math.isnan(value) for value in found.values())


def line(n: int, batch_size: int) -> Samples:
    """Inputs 0, 1, ..., n - 1 with labels 0, 1, 0, 1, ..."""
    x = torch.arange(n, dtype=torch.float32)[:, None]
    return Samples(x, torch.arange(n) % 2, lambda images: images + 1, batch_size=batch_size)


@pytest.mark.parametrize("batch_size", [2, 100])
def test_answers_in_batches(batch_size: int) -> None:
    """Scores (0, log 3) for transformed inputs above 2, else (log 3, 0): probability 3/4 for the answer."""
    sizes = []

    def predictor(x: Tensor) -> Tensor:
        sizes.append(len(x))
        return math.log(3) * torch.cat([x <= 2, x > 2], 1)

    predicted, losses, scores = predict(predictor, line(5, batch_size))
    assert predicted.tolist() == [0, 0, 1, 1, 1]
    right, wrong = -math.log(3 / 4), -math.log(1 / 4)
    np.testing.assert_allclose(losses, [right, wrong, wrong, right, wrong], rtol=1e-6)
    np.testing.assert_allclose(scores[:, 1], [1 / 4, 1 / 4, 3 / 4, 3 / 4, 3 / 4], rtol=1e-6)
    assert sum(sizes) == 5
    assert max(sizes) == min(batch_size, 5)


def test_numbers_over_clients_by_hand() -> None:
    """0, 1/2, 1: mean 1/2, variance (1/4 + 0 + 1/4)/3. The 10th percentile is a fifth of the way from 0 to 1/2."""
    found = over_clients(np.array([1.0, 0.0, 0.5]), "client")
    numbers = {metric: value for (group, metric), value in found.items() if group == "all"}
    expected = {"mean": 1 / 2, "worst": 0, "p10": 1 / 10, "spread": math.sqrt(1 / 6)}
    assert numbers == pytest.approx({f"client_{name}": value for name, value in expected.items()})
    curve = [found[f"percentile={q}", "client_accuracy"] for q in range(0, 101, 10)]
    np.testing.assert_allclose(curve, np.arange(11) / 10, rtol=1e-12)
    assert len(found) == 15


PERSONAL = {"client": {"fedrep": {"E_h": 1, "E_b": 1}}, "prediction": {"name": "personal"}}


@pytest.mark.parametrize(("method", "own"), [({}, (1 / 2, 0, 1 / 2)), (PERSONAL, (1, 1, 0))])
def test_a_federation_whose_clients_have_one_class_each(
    method: Mapping[str, Any], own: tuple[float, ...]
) -> None:
    """The head is a bias. Client 0 has ten samples of class 0, client 1 four of class 1.

    A personal head learns its client's class. The shared one, and the initial one that clients outside get, say 0.
    """
    net = Net(nn.Linear(1, 1, bias=False), nn.Linear(1, 3), 1).double()
    start = np.zeros(7)
    start[4] = 0.01  # of the biases 0, 1, 2 the first one is the largest
    images = torch.ones(7, 1, dtype=torch.float64)
    sets = {
        "validation": ([0, 0, 0, 1, 1], [3, 2]),
        "unseen": ([0, 0, 1, 1, 1, 0, 2], [3, 3, 1]),
    }
    problem = problem_of([np.ones((10, 1)), np.ones((4, 1))], [np.zeros(10, int), np.ones(4, int)], 3)
    samples = {
        split: ClientSamples(Samples(images[: len(labels)], torch.tensor(labels), lambda x: x), sizes)
        for split, (labels, sizes) in sets.items()
    }
    model = federation(replace(problem, client_sets=samples), method, net, lr=0.1, rounds=2, w0=start)
    values = {(r.split, r.group, r.metric): r.value for r in model.evaluate(run(model)[-1])}
    mean, worst, spread = own
    assert values["validation", "all", "client_mean"] == mean
    assert values["validation", "all", "client_worst"] == worst
    assert values["validation", "all", "client_spread"] == spread
    # Of the clients outside 2/3, 1/3 and none of the samples have class 0.
    assert values["unseen", "all", "unseen_worst"] == 0
    assert values["unseen", "all", "unseen_mean"] == pytest.approx(1 / 3)
    assert values["unseen", "all", "unseen_spread"] == pytest.approx(math.sqrt(2 / 27))
    assert values["unseen", "all", "unseen_p10"] == pytest.approx(1 / 15)


def test_evaluation_uses_running_statistics_and_no_dropout() -> None:
    """BatchNorm with mean 0, variance 1 passes x on; a run's evaluation changes neither model nor statistics."""

    def net() -> Net:
        return Net(nn.Sequential(nn.BatchNorm1d(1), nn.Dropout(0.9)), nn.Linear(1, 2, bias=False), 1).double()

    w0 = np.array([1.0, 0.0, 0.0, 1.0])  # BatchNorm weight 1, bias 0, v = (0, 1)
    x = torch.linspace(-5, 5, 40, dtype=torch.float64)[:, None]
    problem = replace(
        problem_of([np.ones((4, 1))], [np.array([0, 1, 0, 1])], 2),
        evaluation_sets={"test": Samples(x, (x[:, 0] > 0).long(), lambda images: images)},
    )
    model = federation(problem, {}, net(), w0=w0)
    state = model.initial_state()
    accuracy = [r.value for r in model.evaluate(state) if (r.group, r.metric) == ("all", "accuracy")]
    assert accuracy == [1.0]
    assert state.buffers.tolist() == [0, 1, 0]
    assert torch.equal(
        model.run_round(state)[0].w, federation(problem, {}, net(), w0=w0).run_round(state)[0].w
    )

"""Metrics of a model on a labelled set: overall, per class, per group, worst group, over clients."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F

from benchmark.metrics import OwnMetric
from methods.core.contexts import Predictor
from methods.core.samples import Samples


class Answers(NamedTuple):
    """What a predictor says about N samples.

    ``classes`` [N] are the predicted ones and ``losses`` [N] the cross-entropies. ``scores`` [N, C] are softmax
    probabilities if the predictor has logits; of a vote they and ``losses`` mean nothing.
    """

    classes: np.ndarray
    losses: np.ndarray
    scores: np.ndarray


@torch.no_grad()
def predict(predictor: Predictor, data: Samples) -> Answers:
    """The answers of one predictor on a set that has samples."""
    # Filled in place: small tensors that are kept from batch to batch would fragment the memory, which would then grow
    # with the size of the set.
    n, device = len(data.y), data.y.device
    predicted = torch.empty(n, dtype=torch.int64, device=device)
    losses = torch.empty(n, device=device)
    scores = torch.empty(n, 0)
    stop = 0
    for images, labels in data.batches():
        logits = predictor(images).float()
        if stop == 0:  # the first batch tells the number of classes
            scores = torch.empty(n, logits.shape[1], device=device)
        start, stop = stop, stop + len(labels)
        predicted[start:stop] = logits.argmax(1)
        losses[start:stop] = F.cross_entropy(logits, labels, reduction="none")
        scores[start:stop] = logits.softmax(1)
    return Answers(predicted.cpu().numpy(), losses.cpu().numpy(), scores.cpu().numpy())


def metrics(
    answers: Answers, logits: bool, labels: np.ndarray, attributes: np.ndarray | None,
    num_classes: int, num_attributes: int,
) -> dict[tuple[str, str], float]:  # fmt: skip
    """Value of each (group, metric).

    ``accuracy`` per class, attribute and class x attribute group, and overall; ``micro_f1`` (equals accuracy for one
    label per sample); ``balanced_accuracy``, the mean recall over classes present; ``worst_group_accuracy``, the
    lowest over the class x attribute groups present (over classes where there are no attributes); `medical_metrics`;
    ``loss``, mean cross-entropy. Without ``logits`` there is no loss and no AUROC.
    """
    right = (answers.classes == labels).astype(np.float64)

    def accuracies(groups: np.ndarray, size: int) -> np.ndarray:
        """Accuracy in each of the groups 0 to size - 1, NaN for those without samples."""
        hit, count = np.bincount(groups, right, size), np.bincount(groups, minlength=size)
        return np.divide(hit, count, out=np.full(size, np.nan), where=count > 0)

    worst = per_class = accuracies(labels, num_classes)
    cells = {f"class={c}": value for c, value in enumerate(per_class)}
    if attributes is not None:
        worst = accuracies(labels * num_attributes + attributes, num_classes * num_attributes)
        per_attribute = accuracies(attributes, num_attributes)
        cells |= {f"attribute={a}": value for a, value in enumerate(per_attribute)}
        names = (f"class={c},attribute={a}" for c in range(num_classes) for a in range(num_attributes))
        cells |= dict(zip(names, worst, strict=True))
    out = {("all", "accuracy"): float(right.mean()), ("all", "micro_f1"): float(right.mean())}
    out["all", "balanced_accuracy"] = float(np.nanmean(per_class))
    if logits:
        out["all", "loss"] = float(answers.losses.astype(np.float64).mean())
    out["all", "worst_group_accuracy"] = float(np.nanmin(worst))
    out |= medical_metrics(answers.classes, answers.scores if logits else None, labels, num_classes)
    return out | {(name, "accuracy"): float(value) for name, value in cells.items() if not np.isnan(value)}


def medical_metrics(
    predicted: np.ndarray, scores: np.ndarray | None, labels: np.ndarray, num_classes: int
) -> dict[tuple[str, str], float]:
    """Value of each (group, metric), of each class against the rest.

    ``macro_f1``, the mean F1 over classes that are present or predicted; ``sensitivity`` and ``specificity`` of each
    class present, and their means; ``auroc``, the mean area under the ROC curve over classes present. A set of one
    class has neither specificity nor AUROC. Tests compare all of them with scikit-learn, which takes 20 ms for what
    takes less than 1 ms here.
    """
    counts = np.bincount(labels * num_classes + predicted, minlength=num_classes**2)
    confusion = counts.reshape(num_classes, num_classes)
    right, actual, said = confusion.diagonal(), confusion.sum(1), confusion.sum(0)
    used, present = actual + said > 0, actual > 0
    values = {("all", "macro_f1"): (2 * right[used] / (actual + said)[used]).mean()}
    shares = {"sensitivity": right[present] / actual[present]}
    if present.sum() > 1:
        rest = len(labels) - actual
        shares["specificity"] = 1 - (said - right)[present] / rest[present]
        if scores is not None and np.isfinite(scores).all():  # a run that diverges ends by its loss
            areas = [_area(scores[labels == c, c], scores[labels != c, c]) for c in np.flatnonzero(present)]
            values["all", "auroc"] = np.mean(areas)
    for name, share in shares.items():
        values["all", name] = share.mean()
        values |= {
            (f"class={c}", name): value for c, value in zip(np.flatnonzero(present), share, strict=True)
        }
    return {key: float(value) for key, value in values.items()}


def _area(positive: np.ndarray, negative: np.ndarray) -> float:
    """Area under the ROC curve: the share of pairs in which the positive score is higher; ties count half."""
    ordered = np.sort(negative)
    below = np.searchsorted(ordered, positive, "left") + np.searchsorted(ordered, positive, "right")
    return float(below.sum() / (2 * len(positive) * len(negative)))


def evaluate(
    predictors: Iterable[Predictor],
    data: Samples,
    num_classes: int,
    num_attributes: int,
    logits: bool,
    own: Sequence[OwnMetric] = (),
) -> dict[tuple[str, str], float]:
    """`metrics` of a prediction rule on one set; those of several predictors (personal models) are averaged.

    ``own``: further ones, of predictors that have logits. One that is not finite is left out.
    """
    labels = data.y.cpu().numpy()
    attributes = None if data.attributes is None else data.attributes.cpu().numpy()
    sums: dict[tuple[str, str], float] = {}
    count = 0
    for predictor in predictors:
        answers = predict(predictor, data)
        values = metrics(answers, logits, labels, attributes, num_classes, num_attributes)
        if logits and np.isfinite(answers.scores).all():
            values |= {("all", metric.name): metric(answers.scores, labels) for metric in own}
        for key, value in values.items():
            sums[key] = sums.get(key, 0.0) + value
        count += 1
    undefined = {("all", metric.name) for metric in own if not np.isfinite(sums.get(("all", metric.name), 0))}
    return {key: total / count for key, total in sums.items() if key not in undefined}


class ClientSamples(NamedTuple):
    """Samples of several clients, client after client; ``sizes`` [K]: how many each has."""

    samples: Samples
    sizes: Sequence[int]


def client_accuracies(predictors: Iterable[Predictor], data: ClientSamples) -> np.ndarray:
    """Accuracy of each client that has samples, on these. One predictor serves all clients, of several each its own."""
    samples, stops = data.samples, np.cumsum(data.sizes)
    labels = samples.y.cpu().numpy()
    right = np.zeros(len(labels), dtype=bool)
    for k, predictor in enumerate(predictors):
        if k == 0:  # it may be the only one
            right[:] = predict(predictor, samples).classes == labels
        elif data.sizes[k]:
            own = slice(stops[k] - data.sizes[k], stops[k])
            part = replace(samples, images=samples.stored(own), y=samples.y[own], rows=None)
            right[own] = predict(predictor, part).classes == labels[own]
    return np.array([part.mean() for part in np.split(right, stops[:-1]) if len(part)])


def over_clients(accuracies: np.ndarray, name: str) -> dict[tuple[str, str], float]:
    """Value of each (group, metric) of the clients' accuracies [K]; ``name`` is client or unseen.

    ``mean``, ``worst``, ``p10`` (10th percentile, linear between clients), ``spread`` (standard deviation, divisor K),
    and ``accuracy`` at every tenth percentile, from the worst client (0) to the best (100).
    """
    deciles = np.arange(0, 101, 10)
    values = np.percentile(accuracies, deciles)
    numbers = {"mean": accuracies.mean(), "worst": values[0], "p10": values[1], "spread": accuracies.std()}
    out = {("all", f"{name}_{key}"): float(value) for key, value in numbers.items()}
    curve = zip(deciles, values, strict=True)
    return out | {(f"percentile={q}", f"{name}_accuracy"): float(value) for q, value in curve}

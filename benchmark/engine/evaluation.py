"""Metrics of a model on a labelled set: overall, per class, per group, worst group; in long form."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from benchmark.engine.records import Record
from methods.core.contexts import Predictor


@dataclass(frozen=True)
class Images:
    """The images ``own`` [n, c, H, W], followed by the rows ``chosen`` [m] of ``others``, without a copy of either.

    A part of the training images can thus be held out, or join the test set, without using more memory.
    """

    own: Tensor
    others: Tensor
    chosen: Tensor

    def __len__(self) -> int:
        return len(self.own) + len(self.chosen)

    def __getitem__(self, rows: slice | Tensor) -> Tensor:
        if isinstance(rows, slice):
            rows = torch.arange(len(self), device=self.chosen.device)[rows]
        is_own = rows < len(self.own)
        batch = self.own.new_empty((len(rows), *self.own.shape[1:]))
        batch[is_own] = self.own[rows[is_own]]
        batch[~is_own] = self.others[self.chosen[rows[~is_own] - len(self.own)]]
        return batch


@dataclass(frozen=True)
class EvaluationSet:
    """A labelled set on the device: uint8 images [N, c, H, W], labels [N], attributes [N] or None."""

    images: Tensor | Images
    labels: Tensor
    attributes: Tensor | None
    num_classes: int
    num_attributes: int
    transform: Callable[[Tensor], Tensor]
    batch_size: int = 512

    def batches(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Transformed images and their labels, in order."""
        for start in range(0, len(self.labels), self.batch_size):
            part = slice(start, start + self.batch_size)
            yield self.transform(self.images[part]), self.labels[part]


@torch.no_grad()
def predict(predictor: Predictor, data: EvaluationSet) -> tuple[np.ndarray, np.ndarray]:
    """(predicted class [N], cross-entropy of each sample [N]) of one predictor."""
    # Filled in place: small tensors that are kept from batch to batch would fragment the memory, which would then grow
    # with the size of the set.
    predicted = torch.empty(len(data.labels), dtype=torch.int64, device=data.labels.device)
    losses = torch.empty(len(data.labels), device=data.labels.device)
    stop = 0
    for images, labels in data.batches():
        scores = predictor(images).float()
        start, stop = stop, stop + len(labels)
        predicted[start:stop] = scores.argmax(1)
        losses[start:stop] = F.cross_entropy(scores, labels, reduction="none")
    return predicted.cpu().numpy(), losses.cpu().numpy()


def metrics(
    predicted: np.ndarray, losses: np.ndarray | None, labels: np.ndarray, attributes: np.ndarray | None,
    num_classes: int, num_attributes: int,
) -> dict[tuple[str, str], float]:  # fmt: skip
    """Value of each (group, metric).

    ``accuracy`` per class, attribute and class x attribute group, and overall; ``micro_f1`` (equals accuracy for one
    label per sample); ``balanced_accuracy``, the mean recall over classes present; ``worst_group_accuracy``, the
    lowest over the class x attribute groups present (over classes where there are no attributes); ``loss``, mean
    cross-entropy.
    """
    right = (predicted == labels).astype(np.float64)

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
    if losses is not None:
        out["all", "loss"] = float(losses.astype(np.float64).mean())
    out["all", "worst_group_accuracy"] = float(np.nanmin(worst))
    return out | {(name, "accuracy"): float(value) for name, value in cells.items() if not np.isnan(value)}


def evaluate(
    predictors: Iterable[Predictor], data: EvaluationSet, round: int, split: str, logits: bool
) -> list[Record]:
    """Records of a prediction rule on one set; the metrics of several predictors (personal models) are averaged."""
    labels = data.labels.cpu().numpy()
    attributes = None if data.attributes is None else data.attributes.cpu().numpy()
    sums: dict[tuple[str, str], float] = {}
    count = 0
    for predictor in predictors:
        predicted, losses = predict(predictor, data)
        known = losses if logits else None
        each = metrics(predicted, known, labels, attributes, data.num_classes, data.num_attributes)
        for key, value in each.items():
            sums[key] = sums.get(key, 0.0) + value
        count += 1
    return [Record(round, split, group, metric, total / count) for (group, metric), total in sums.items()]

"""Names of the metrics that every evaluation records, and the registry of one's own."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from benchmark.errors import ConfigError, UserError, wrong
from benchmark.paths import folders_of
from benchmark.registry import Registry

__path__ += folders_of("metrics")

RECORDED = (
    "accuracy", "micro_f1", "balanced_accuracy", "worst_group_accuracy", "loss",
    "macro_f1", "auroc", "sensitivity", "specificity",
)  # fmt: skip
"""What every evaluation records of a whole set."""

Function = Callable[[np.ndarray, np.ndarray], float]
"""``function(scores, labels)``: softmax probabilities [N, C] and labels [N] to one number; NaN if it is not defined."""


@dataclass(frozen=True)
class OwnMetric:
    """A metric of a repository: how it is computed, and how tables show it."""

    name: str
    label: str
    higher_is_better: bool
    function: Function

    def __call__(self, scores: np.ndarray, labels: np.ndarray) -> float:
        """Its value. `UserError` if the function returns no number."""
        value = self.function(scores, labels)
        try:
            return float(value)
        except (TypeError, ValueError) as error:
            raise UserError(wrong(f"metric {self.name}", value, "a number")) from error


OWN: Registry[OwnMetric] = Registry("metric", __name__, ConfigError)


def metric(name: str, *, label: str, higher_is_better: bool = True) -> Callable[[Function], Function]:
    """Register a function of ``metrics/`` under a name that ``evaluation.metrics`` and tables know.

    Args:
        name: Its name in configurations and records.
        label: Its name in captions.
        higher_is_better: Which of two values is better.
    """
    if name in RECORDED:
        raise ConfigError(wrong("@metric", name, f"another name than {', '.join(RECORDED)}"))

    def register(function: Function) -> Function:
        OWN.add(name, OwnMetric(name, label, higher_is_better, function), function.__module__)
        return function

    return register


def own_metric(key: str, name: str) -> OwnMetric:
    """The metric of a repository that the setting ``key`` names; errors as `Registry.get`."""
    return OWN.get(
        key, name, "to one of these, or define it with @metric in metrics/ of a repository", beside=RECORDED
    )

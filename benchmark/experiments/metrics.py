"""The metrics that a table can show, the round of a run that it reads, and the numbers that it prints."""

import re
from dataclasses import dataclass
from typing import Literal

from benchmark.errors import ConfigError, wrong
from benchmark.metrics import own_metric

Show = Literal["measured", "published", "difference", "both"]
"""Which numbers a table prints; a difference is a row minus the base row, seed by seed."""


@dataclass(frozen=True)
class Metric:
    """How a recorded metric is shown.

    Attributes:
        label: Name in captions.
        higher_is_better: Which of two values is better.
        scale: Recorded values are multiplied by it (records hold fractions, tables show percent).
        unit: Printed after a value.
        split: Where it is recorded.
        of: For a metric that compares rows by the round in which they reach a value: the metric of that value.
    """

    label: str
    higher_is_better: bool = True
    scale: float = 100.0
    unit: str = "%"
    split: str = "test"
    of: str = ""

    @property
    def axis(self) -> str:
        """The label with the unit in brackets."""
        return f"{self.label} ({self.unit})" if self.unit else self.label


def _number(label: str, higher_is_better: bool = False, split: str = "test", of: str = "") -> Metric:
    return Metric(label, higher_is_better, 1.0, "", split, of)


def _over_clients(name: str, split: str, client: str) -> dict[str, Metric]:
    """The accuracies of clients on their own samples."""
    return {
        f"{name}_mean": Metric(f"Mean accuracy over {client}s", split=split),
        f"{name}_worst": Metric(f"Accuracy of the worst {client}", split=split),
        f"{name}_p10": Metric(f"10th percentile of accuracies over {client}s", split=split),
        f"{name}_spread": Metric(f"Standard deviation of accuracies over {client}s", False, split=split),
    }


METRICS = {
    "accuracy": Metric("Test accuracy"),
    "micro_f1": Metric("Micro-F1"),
    "worst_group_accuracy": Metric("Worst-group accuracy"),
    "balanced_accuracy": Metric("Balanced accuracy"),
    "macro_f1": Metric("Macro-F1"),
    "auroc": Metric("AUROC, mean of each class against the rest"),
    "sensitivity": Metric("Sensitivity, mean over classes"),
    "specificity": Metric("Specificity, mean over classes"),
    "loss": _number("Test loss"),
    "eigenvalue_spread": _number("Spread of the 50 largest eigenvalues"),
    "eigenvalue_spread_class": _number("Spread of the 50 largest eigenvalues within classes"),
    **_over_clients("client", "validation", "client"),
    **_over_clients("unseen", "unseen", "unseen client"),
    "rounds_to_reach": _number("Rounds until the reference row's best test accuracy", of="accuracy"),
    "speedup": _number(
        "Speed-up: rounds of the reference row until its best test accuracy, over those of the row",
        higher_is_better=True,
        of="accuracy",
    ),
    "dht_error": _number("Mean error of the estimated triplets", split="selection"),
    "dht_error_max": _number("Largest error of the estimated triplets", split="selection"),
}


def format_of(name: str, key: str = "metric") -> Metric:
    """How a metric is shown, of FedTables or of a repository. `UserError`, about ``key``, if there is none."""
    if name in METRICS:
        return METRICS[name]
    own = own_metric(key, name)
    return _number(own.label, own.higher_is_better)


@dataclass(frozen=True)
class WhichRound:
    """The round of a run that counts.

    Attributes:
        rule: ``last``, ``mean_last`` (mean over the last ``n`` evaluations), ``mean_until`` (mean over the evaluations
            from round 1 to round ``n``: how fast a run learns), ``best_validation`` or ``best_test``.
        n: Number of evaluations of ``mean_last``, last round of ``mean_until``.
    """

    rule: str
    n: int = 1

    @classmethod
    def parse(cls, text: str) -> "WhichRound":
        """Read a rule, as `expected` below lists them; ValueError for anything else."""
        match = re.fullmatch(r"(last|best_validation|best_test)|(mean_last|mean_until)_([1-9]\d*)", text)
        if not match:
            expected = "last, mean_last_<n>, mean_until_<n>, best_validation or best_test"
            raise ValueError(wrong("which_round", text, expected))
        return cls(match[1] or match[2], int(match[3] or 1))

    def require(self, rounds: int, every: int, validation: float | None) -> None:
        """Raise `ConfigError` if such a run is not evaluated often enough, or not on samples that choose its round."""
        given = f"train.rounds={rounds}, evaluation.every={every}"
        evaluated = len({*range(0, rounds, every), rounds})
        if self.rule == "mean_last" and evaluated < self.n:
            raise ConfigError(
                wrong("which_round", f"{evaluated} evaluations ({given})", f"at least {self.n}")
            )
        if self.rule == "mean_until" and min(every, rounds) > self.n:
            expected = f"an evaluated round from 1 to {self.n}"
            raise ConfigError(wrong("which_round", given, expected))
        if self.rule == "best_validation" and not validation:
            raise ConfigError(
                wrong("evaluation.validation", validation, "a share for which_round=best_validation")
            )

    @property
    def phrase(self) -> str:
        """The rule in the words of a caption."""
        return {
            "last": "last round",
            "mean_last": f"mean of the last {self.n} evaluated rounds",
            "mean_until": f"mean of the evaluated rounds up to round {self.n}",
            "best_validation": "round with the best value on the validation split",
            "best_test": "best round on the test set (the test set selects)",
        }[self.rule]

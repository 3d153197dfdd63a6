"""Printed inconsistencies of the papers: the list of ``results/published/README.md``, and how printed numbers are read.

Numbers are exact decimals, as printed in the papers' tables (``results/published/*.csv``).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Decimal

from benchmark.errors import ConfigError
from benchmark.paths import PUBLISHED
from benchmark.reports.published import read_published

METRICS = {
    "fedmr_table3": "parameters_sent_per_round",
    "fedmr_table7": "top50_eigenvalue_variance",
    "fedsdc_table1": "micro_f1",
    "fedsdc_table2": "micro_f1",
    "feddiverse_table1": "worst_group_accuracy",
    "feddiverse_table3": "worst_group_accuracy",
    "feddiverse_table4": "worst_group_accuracy",
    "feddiverse_table5": "worst_group_accuracy",
    "feddiverse_table8": "worst_group_accuracy",
}
"""Table -> the metric that is meant unless another one is named. For the others it is the accuracy."""

NAMES = {
    "fedavg": "FedAvg",
    "fedavgm": "FedAvgM",
    "fedavgm+fedprox": "FedAvgM+FedProx",
    "fedprox": "FedProx",
    "fedproc": "FedProc",
    "fednova": "FedNova",
    "moon": "MOON",
    "feddyn": "FedDyn",
    "feddc": "FedDC",
    "fedadam": "FedAdam",
    "fedyogi": "FedYogi",
    "fedadagrad": "FedAdagrad",
    "feddisco": "FedDisco",
    "isfl": "ISFL",
    "fedpac": "FedPAC",
    "fedbn": "FedBN",
    "fedgh": "FedGH",
    "powd": "pow-d",
    "fedpns": "FedPNS",
    "hcsfed": "HCSFed",
    "round_robin": "round robin",
    "uniform": "uniform",
}


@dataclass(frozen=True)
class Sum:
    """A piece of arithmetic on printed numbers.

    Attributes:
        id: The inconsistency that it belongs to; empty for a printed number that agrees.
        text: The arithmetic in words and numbers.
        values: What was computed.
    """

    id: str
    text: str
    values: tuple[Decimal, ...] = ()


def number(value: Decimal, digits: int = 2, sign: bool = False) -> str:
    """``value`` rounded half up, with an explicit sign if asked for."""
    rounded = value.quantize(Decimal(1).scaleb(-digits), ROUND_HALF_UP)
    return f"{rounded:+}" if sign else str(rounded)


def plain(value: Decimal) -> str:
    """``value`` with as many digits as it has, without trailing zeros."""
    return f"{value.normalize():f}"


def minus(name: str, start: str, first: Decimal, second: Decimal, digits: int = 2) -> Sum:
    """``START FIRST - SECOND = DIFFERENCE``, for the inconsistency ``name``."""
    difference = first - second
    return Sum(name, f"{start}{first} - {second} = {number(difference, digits, True)}", (difference,))


class Printed:
    """The printed numbers of one table."""

    def __init__(self, table: str) -> None:
        self.lines = read_published(PUBLISHED / f"{table}.csv").to_dict("records")
        self.metric = METRICS.get(table, "accuracy")
        keys = ("method", "setting", "metric", "selection")
        self._cells = {tuple(line.get(key, "") for key in keys): line for line in self.lines}

    def line(self, method: str, setting: str, selection: str = "", metric: str = "") -> dict[str, str]:
        """The line of a cell. `ConfigError` if there is no such cell."""
        key = (method, setting, metric or self.metric, selection)
        if key not in self._cells:
            raise ConfigError(f"published: no cell {', '.join(key)}.")
        return self._cells[key]

    def text(self, method: str, setting: str, selection: str = "", metric: str = "") -> str:
        """A cell as printed; empty where it was lost in the copy."""
        return self.line(method, setting, selection, metric)["mean"]

    def value(self, method: str, setting: str, selection: str = "", metric: str = "") -> Decimal:
        """A cell as a number."""
        return Decimal(self.text(method, setting, selection, metric))

    def with_spread(self, method: str, setting: str, selection: str = "", metric: str = "") -> str:
        """``mean ± std`` of a cell, as printed."""
        line = self.line(method, setting, selection, metric)
        return f"{line['mean']} ± {line['std']}"

    def best(self, methods: tuple[str, ...], setting: str) -> str:
        """The method with the highest printed number."""
        return max((m for m in methods if self.text(m, setting)), key=lambda m: self.value(m, setting))


PREFIX = {"LD": "fedld", "SDC": "fedsdc", "DIV": "feddiverse", "MR": "fedmr"}


def inconsistencies(text: str | None = None) -> dict[str, dict[str, str]]:
    """Paper -> id -> what is inconsistent, in the order of the list.

    ``text``: a Markdown file in which an id in bold begins a list item or a row of a table under a heading row;
    without it, ``results/published/README.md``.
    """
    if text is None:
        text = (PUBLISHED / "README.md").read_text(encoding="utf-8")
    found: dict[str, dict[str, str]] = {paper: {} for paper in PREFIX.values()}
    heads: list[str] = []
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip("| ").split("|")] if line.startswith("|") else []
        if cells and cells[0] == "cell":
            heads = cells
        match = re.match(r"(?:- |\| )\*\*((LD|SDC|DIV|MR)-\d+)\*\* *(.*)", line)
        if match:
            name, prefix, rest = match[1], match[2], match[3]
            if cells:
                about = cells[0].partition("** ")[2]
                facts = [
                    cell if head == "remark" else f"{head} {cell}"
                    for head, cell in zip(heads[1:], cells[1:], strict=True)
                ]
                rest = f"{about}: {', '.join(facts)}"
            # "Above" means a place in that file.
            found[PREFIX[prefix]][name] = rest.replace(", see above", "")
    return found

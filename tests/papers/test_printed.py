"""The list of printed inconsistencies (results/published/README.md) against the papers' tables beside it."""

import re

import pandas as pd

from benchmark.papers.ledger import ENTRIES
from benchmark.paths import PUBLISHED

README = (PUBLISHED / "README.md").read_text(encoding="utf-8")
LIST = README.partition("\n## Inconsistencies\n")[2].partition("\n## ")[0]
ITEMS = dict(re.findall(r"^- \*\*([A-Z]+-\d+)\*\* .+\n((?:  - .+\n)*)", LIST + "\n", re.MULTILINE))
EQUATION = re.compile(r"([\d(][\d.,() ]*[-+x/][-+x/\d.,() ]*) = ([+-]?[\d.,]*\d)( %)?")


def printed(table: str, metric: str = "accuracy") -> pd.DataFrame:
    """Methods x settings of a table."""
    frame = pd.read_csv(PUBLISHED / f"{table}.csv", keep_default_na=False)
    frame = frame[(frame["metric"] == metric) & (frame["mean"] != "")]
    return frame.astype({"mean": float}).pivot(index="method", columns="setting", values="mean")


def partitions(table: pd.DataFrame, dataset: str) -> pd.DataFrame:
    """The columns of the five partitions of a data set in FedMR's table 1, without their average."""
    return table[[name for name in table if name.startswith(f"{dataset}/") and not name.endswith("avg")]]


def test_every_item_is_listed_once_and_those_that_the_ledger_names_exist() -> None:
    counts = {"LD": 6, "SDC": 10, "DIV": 17, "MR": 20}
    assert list(ITEMS) == [f"{name}-{n}" for name, count in counts.items() for n in range(1, count + 1)]
    text = "".join(path.read_text(encoding="utf-8") for path in ENTRIES.glob("*.yaml"))
    named = set(re.findall(r"\b(?:LD|SDC|DIV|MR)-\d+\b", text))
    assert {"LD-1", "SDC-1", "DIV-8"} <= named <= set(ITEMS)


def test_the_arithmetic_is_right() -> None:
    """Every equation, in the digits of its right side, and every number on its left side is printed somewhere."""
    known = {9.6, 0.8, 12, 17092, 10015, 7, 30, 15, 5, 6, 20, 60, 3}
    for path in PUBLISHED.glob("*.csv"):
        frame = pd.read_csv(path)
        if "mean" in frame:
            known |= set(pd.to_numeric(frame["mean"], errors="coerce").dropna())
    table = printed("fedmr_table1")
    for dataset in ("fmnist", "svhn", "cifar10", "cifar100"):
        known |= set(partitions(table, dataset).mean(axis=1).round(3))
    count = 0
    for name, lines in ITEMS.items():
        for left, right, percent in EQUATION.findall(lines.replace(",", "")):
            count += 1
            value = eval(left.replace("x", "*")) * (100 if percent else 1)
            digits = len(right.partition(".")[2])
            assert abs(value - float(right)) <= 0.5 * 10**-digits + 1e-9, (name, left, right)
            known.add(abs(float(right)))
            assert {float(number) for number in re.findall(r"[\d.]+", left)} <= known, (name, left)
    assert count == 56


def test_every_wrong_average_of_fedmr_is_listed() -> None:
    """Table 1: an average is right to half its last digit (MR-1 to MR-5)."""
    table = printed("fedmr_table1")
    wrong = set()
    for dataset in ("fmnist", "svhn", "cifar10", "cifar100"):
        off = (table[f"{dataset}/avg"] - partitions(table, dataset).mean(axis=1)).abs() > 0.005 + 1e-9
        wrong |= {(dataset, method) for method in off.index[off]}
    assert wrong == {
        ("fmnist", "fedmr"), ("fmnist", "moon"), ("svhn", "fednova"), ("cifar10", "fedavg"), ("cifar100", "feddyn"),
    }  # fmt: skip

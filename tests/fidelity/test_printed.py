"""The list of printed inconsistencies (results/published/README.md) against the papers' tables beside it."""

import re

import pandas as pd

from benchmark.fidelity.document import inconsistencies
from benchmark.paths import PUBLISHED

ITEMS = {name: (about, lines) for section in inconsistencies() for name, about, lines in section.listed}
EQUATION = re.compile(r"([\d(][\d.,() ]*[-+x/][-+x/\d.,() ]*) = ([+-]?[\d.,]*\d)( %)?")


def printed(table: str, metric: str = "accuracy") -> pd.DataFrame:
    """Methods x settings of a table."""
    frame = pd.read_csv(PUBLISHED / f"{table}.csv", keep_default_na=False)
    frame = frame[(frame["metric"] == metric) & (frame["mean"] != "")]
    return frame.astype({"mean": float}).pivot(index="method", columns="setting", values="mean")


def partitions(table: pd.DataFrame, dataset: str) -> pd.DataFrame:
    """The columns of the five partitions of a data set in FedMR's table 1, without their average."""
    return table[[name for name in table if name.startswith(f"{dataset}/") and not name.endswith("avg")]]


def equations(name: str) -> list[tuple[str, str, bool]]:
    """(left side, right side, whether it is in percent) of the arithmetic of an item."""
    found = [match for line in ITEMS[name][1] for match in EQUATION.findall(line)]
    return [
        (left.replace(",", "").strip(), right.replace(",", ""), bool(unit)) for left, right, unit in found
    ]


def test_the_whole_list_is_read() -> None:
    """Each id once and in order, and what of it agrees."""
    sections = inconsistencies()
    assert {section.paper: len(section.listed) for section in sections} == {
        "FedLD": 6, "FedSDC": 10, "FedDiverse": 17, "FedMR": 20,
    }  # fmt: skip
    for section, prefix in zip(sections, ("LD", "SDC", "DIV", "MR"), strict=True):
        names = [name for name, _, _ in section.listed]
        assert names == [f"{prefix}-{number}" for number in range(1, len(names) + 1)]
    assert ITEMS["LD-5"] == ("L = 0.8 m is 9.6 for 12 clients; rounding not stated.", ["0.8 x 12 = 9.6"])
    said = "27 of 32 averages of table 1; 43 of 48 improvements and Deltas of table 1."
    assert sections[3].agreeing == said and not sections[0].agreeing


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
    for name in ITEMS:
        for left, right, percent in equations(name):
            count += 1
            value = eval(left.replace("x", "*")) * (100 if percent else 1)
            digits = len(right.partition(".")[2])
            assert abs(value - float(right)) <= 0.5 * 10**-digits + 1e-9, (name, left, right)
            known.add(abs(float(right)))
            assert {float(number) for number in re.findall(r"[\d.]+", left)} <= known, (name, left)
    assert count == 56


def test_every_wrong_average_and_difference_of_fedmr_is_listed() -> None:
    """Table 1: an average is right to half its last digit, a difference to its last digit."""
    table = printed("fedmr_table1")
    own = printed("fedmr_table1", "improvement_over_fedavg").loc["fedmr"]
    deltas = printed("fedmr_table1", "delta_over_best_baseline").loc["fedmr"]
    averages, differences = set(), set()
    for dataset in ("fmnist", "svhn", "cifar10", "cifar100"):
        cells = partitions(table, dataset)
        mean = cells.mean(axis=1)
        off = (table[f"{dataset}/avg"] - mean).abs() > 0.005 + 1e-9
        averages |= {(dataset, method) for method in off.index[off]}
        cells = cells.assign(**{f"{dataset}/avg": mean})
        best = cells.drop("fedmr").max()
        for what, other, said in (("improvement", cells.loc["fedavg"], own), ("delta", best, deltas)):
            wrong = (cells.loc["fedmr"] - other - said[cells.columns]).abs() >= 0.01 - 1e-9
            differences |= {(setting, what) for setting in wrong.index[wrong]}
    assert averages == {
        ("fmnist", "fedmr"), ("fmnist", "moon"), ("svhn", "fednova"), ("cifar10", "fedavg"), ("cifar100", "feddyn"),
    }  # fmt: skip
    assert differences == {
        ("fmnist/avg", "improvement"), ("fmnist/avg", "delta"), ("cifar100/avg", "delta"), ("svhn/p5c2", "delta"),
        ("cifar10/p10c2", "improvement"),
    }  # fmt: skip


def test_every_loss_of_feddiverse_is_listed() -> None:
    """Table 3: with uniform selection, and (DIV-4, DIV-12) the kinds and sizes of clients in table 6."""
    frame = pd.read_csv(PUBLISHED / "feddiverse_table3.csv")
    frame = frame[frame["metric"] == "worst_group_accuracy"]
    pairs = frame.pivot(index=["method", "setting"], columns="selection", values="mean")
    worse = pairs["feddiverse"] <= pairs["uniform"]
    assert len(pairs) == 24
    assert set(pairs.index[worse]) == {("fedavgm+fedprox", "spawrious_gai")}

    types = pd.read_csv(PUBLISHED / "feddiverse_table6.csv")
    gai = types[types["setting"] == "spawrious_gai"]
    triplets = gai[["ci", "ai", "sc"]].astype(float)
    top = triplets.eq(triplets.max(axis=1), axis=0)
    kinds = top.apply(lambda row: "/".join(row.index[row]), axis=1)
    assert gai["n_clients"].groupby(kinds).sum().to_dict() == {"ci": 3, "ai": 16, "sc": 2, "ci/ai": 4}
    matrices = types.loc[types["setting"] == "spawrious4", "matrix"]
    assert {sum(map(int, re.findall(r"\d+", matrix))) for matrix in matrices} == {100, 492, 496}


def test_the_best_of_the_others() -> None:
    """As LD-2, SDC-5, DIV-14, MR-8 and MR-14 name them."""
    for paper, metric, best in (
        ("fedld", "accuracy", {"fedprox": "retina_split1 retina_split2", "fedgh": "retina_split3 covid_fl"}),
        ("fedsdc", "micro_f1", {"fedavgm": "niid1 niid2"}),
        ("feddiverse", "worst_group_accuracy", {"powd": "spawrious_gsc waterbirds_dist"}),
        ("fedmr", "accuracy", {"fedproc": "svhn/iid cifar100/iid", "fedavg": "svhn/p5c2"}),
    ):
        others = printed(f"{paper}_table1", metric).drop([paper, "fedsdc_plus"], errors="ignore")
        for method, settings in best.items():
            assert set(others[settings.split()].idxmax()) == {method}

"""Arithmetic on printed numbers, held against what was read from the papers by hand (results/published/README.md)."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pandas as pd
import pytest

from benchmark.errors import ConfigError
from benchmark.fidelity import checks, printed
from benchmark.fidelity.checks import agreeing, arithmetic, pieces
from benchmark.fidelity.printed import Printed, inconsistencies, number

# Id -> the numbers that results/published/README.md states for it.
STATED: dict[str, tuple[str, ...]] = {
    "LD-2": ("1.30", "1.03", "0.50", "0.30", "0.74", "0.74", "1.61", "1.61"),
    "LD-5": ("9.6",),
    "SDC-5": ("2.47", "1.85"),
    "SDC-6": ("-0.10", "-0.06", "-0.04"),
    "SDC-8": ("13673.6", "9805", "1500", "5400"),
    "DIV-1": ("-0.48",),
    "DIV-2": ("4.15", "4.78", "5.71", "3.74"),
    "DIV-3": ("0.94", "-0.88", "0.57", "-2.44", "-2.54", "-2.08", "5", "10", "15"),
    "DIV-4": ("12", "64", "8", "80"),
    "DIV-12": ("100", "492", "496"),
    "DIV-13": ("0.01", "0.44", "0.05"),
    "DIV-14": ("-1.11", "-2.65"),
    "MR-1": ("83.252", "0.198"),
    "MR-2": ("79.854", "0.016"),
    "MR-3": ("84.036", "-0.166"),
    "MR-4": ("78.574", "0.006"),
    "MR-5": ("67.018", "0.202"),
    "MR-6": ("3.90", "2.99"),
    "MR-7": ("0.64",),
    "MR-8": ("1.25",),
    "MR-9": ("6.05",),
    "MR-10": ("4.33", "2.98", "1.33", "0.36"),
    "MR-11": ("3.14", "0.95"),
    "MR-12": ("49.84", "50.22", "50.22"),
    "MR-13": ("-0.15",),
    "MR-14": ("-0.53", "-0.28"),
    "MR-15": ("0.31",),
    "MR-16": ("73", "33", "3"),
    "MR-17": ("0.0447", "0.0447", "0.0447", "0.1026"),
}


@pytest.mark.parametrize("name", STATED)
def test_the_arithmetic_gives_what_was_found_by_hand(name: str) -> None:
    values = [value for piece in arithmetic(name) for value in piece.values]
    expected = STATED[name]
    assert [
        number(value, len(text.partition(".")[2])) for value, text in zip(values, expected, strict=True)
    ] == [*expected]


def test_what_agrees_is_counted() -> None:
    # README: 27 of 32 averages; 22 of 24 improvements and 21 of 24 Deltas; 23 of 24 pairs of FedDiverse's table 3.
    assert agreeing("fedmr") == [
        "27 of 32 averages of table 1",
        "43 of 48 improvements and Deltas of table 1",
    ]
    assert agreeing("feddiverse")[0].startswith("23 of 24 gains of FedDiverse over uniform")
    assert agreeing("fedld") == agreeing("fedsdc") == []


def test_every_piece_belongs_to_a_line_of_the_list() -> None:
    known = {name for found in inconsistencies().values() for name in found} | {""}
    used = {piece.id for parts in checks.CHECKS.values() for part in parts for piece in pieces(part)}
    assert used <= known
    assert used >= STATED.keys()


def test_the_whole_list_is_read() -> None:
    found = inconsistencies()
    assert {paper: len(items) for paper, items in found.items()} == {
        "fedld": 6,
        "fedsdc": 10,
        "feddiverse": 17,
        "fedmr": 20,
    }
    for prefix, paper in printed.PREFIX.items():
        assert list(found[paper]) == [f"{prefix}-{i}" for i in range(1, len(found[paper]) + 1)]
        assert all(found[paper].values())


def test_items_and_rows_of_the_list_are_read_with_their_headings() -> None:
    text = """
### FedMR
- **LD-1** alpha of split 2, see above.
- Checked, no mismatch: LD-2.
| cell | printed | recomputed | remark |
|---|---|---|---|
| **MR-1** FMNIST FedMR | 83.45 | 83.252 | off |
| other | **MR-2** | 1 | |
"""
    found = inconsistencies(text)
    assert found["fedld"] == {"LD-1": "alpha of split 2."}
    assert found["fedmr"] == {"MR-1": "FMNIST FedMR: printed 83.45, recomputed 83.252, off"}


@pytest.mark.parametrize(
    ("check", "table", "where", "value"),
    [
        ("fedmr_averages", "fedmr_table1", {"method": "moon", "setting": "svhn/avg"}, "80.00"),
        (
            "fedmr_differences",
            "fedmr_table1",
            {"setting": "fmnist/p5c2", "metric": "delta_over_best_baseline"},
            "9.00",
        ),
        (
            "fedmr_scale",
            "fedmr_table2",
            {"method": "fedmr", "setting": "cifar10/p50c3", "metric": "accuracy"},
            "50",
        ),
    ],
)
def test_a_disagreement_that_is_not_listed_is_noticed(
    monkeypatch: pytest.MonkeyPatch, check: str, table: str, where: dict[str, str], value: str
) -> None:
    read = printed.read_published

    def changed(path: Any) -> pd.DataFrame:
        frame = read(path).copy()
        if path.stem == table:
            frame.loc[(frame[list(where)] == pd.Series(where)).all(axis=1), "mean"] = value
        return frame

    function = getattr(checks, check)
    assert checks.UNLISTED not in {piece.id for piece in function()}
    monkeypatch.setattr(printed, "read_published", changed)
    assert checks.UNLISTED in {piece.id for piece in function()}


def test_numbers_are_rounded_half_up_and_signed_if_asked_for() -> None:
    assert number(Decimal("0.125")) == "0.13"
    assert number(Decimal("-0.125"), sign=True) == "-0.13"
    assert number(Decimal("2"), 1, True) == "+2.0"
    assert printed.plain(Decimal("83.10")) == "83.1"
    assert printed.plain(Decimal("80")) == "80"


def test_a_cell_that_is_not_printed_is_named() -> None:
    with pytest.raises(ConfigError, match="fedmagic"):
        Printed("fedmr_table1").value("fedmagic", "fmnist/avg", "accuracy")

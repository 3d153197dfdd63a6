"""The paired difference of two cells of CSV tables, each given as FILE ROW COLUMN, with its 95 % interval.

``python scripts/difference.py results/small/a.csv fedmr fmnist/avg results/small/b.csv fedavg fmnist/avg``
"""

import csv
import sys

from benchmark.reports.statistics import paired_difference


def by_seed(file: str, row: str, column: str) -> dict[int, float]:
    """Seed -> value of the cell, without runs that have none (``2=diverged``)."""
    with open(file, encoding="utf-8") as lines:
        (seeds,) = (
            one["seeds"] for one in csv.DictReader(lines) if (one["row"], one["column"]) == (row, column)
        )
    pairs = (pair.split("=") for pair in seeds.split(";"))
    return {int(seed): float(value) for seed, value in pairs if not value.isalpha()}


if __name__ == "__main__":
    print(paired_difference(by_seed(*sys.argv[1:4]), by_seed(*sys.argv[4:7])))

"""The paired difference of two cells of CSV tables, each given as FILE ROW COLUMN, with its 95 % interval.

``python scripts/difference.py results/small/a.csv fedmr fmnist/avg results/small/b.csv fedavg fmnist/avg``
"""

import csv
import sys

from benchmark.papers.evidence import by_seed
from benchmark.reports.statistics import paired_difference


def cell(file: str, row: str, column: str) -> dict[int, float]:
    """Seed -> value of the cell."""
    with open(file, encoding="utf-8") as lines:
        (found,) = (line for line in csv.DictReader(lines) if (line["row"], line["column"]) == (row, column))
    return by_seed(found)


if __name__ == "__main__":
    print(paired_difference(cell(*sys.argv[1:4]), cell(*sys.argv[4:7])))

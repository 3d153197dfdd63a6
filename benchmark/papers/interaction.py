"""The data of FedDiverse's clients: its Tables 5 and 6, printed numbers beside those of the partitions that runs use.

Nemeth et al., FedDiverse, 2025, https://arxiv.org/abs/2504.11216, appendix A

Counted from the partitions at full size; neither data nor runs are needed. The accuracies of Table 5 (centralised SGD)
come from runs, of conf/table/feddiverse_table5*.yaml.
"""

from collections import Counter
from collections.abc import Mapping

import pandas as pd

from benchmark.experiments.selection import ResultsOptions
from benchmark.heterogeneity import triplets
from benchmark.paths import PUBLISHED
from benchmark.reports.published import read_published
from benchmark.reports.tables import Table, text_table
from partitions.core.base import IntArray
from partitions.interaction import Interaction

PRINTED = {"CI": "class_imbalance", "AI": "attribute_imbalance", "SC": "spurious_correlation"}
"""The metrics of Table 5 and their names in the published file."""

TRIPLETS = (
    "CI, AI, SC: class imbalance, attribute imbalance, spurious correlation of the matrix (Eqs. 2-4), whose rows are "
    "classes and whose columns are attributes."
)

REBUILT = (
    "The matrices of Spawrious GCI are damaged in the text copy; those compared here were rebuilt from the printed "
    "triplets and the pooled matrix of Table 5."
)


def _text(matrix: IntArray) -> str:
    return "; ".join(" ".join(str(count) for count in row) for row in matrix.tolist())


def _same(printed: str, counted: str) -> str:
    rows, others = ([row.split() for row in text.split(";")] for text in (printed, counted))
    return "yes" if rows == others else "no"


def _beside(printed: Mapping[str, object], matrix: IntArray) -> dict[str, object]:
    """Printed and counted value of each metric of a matrix."""
    cells: dict[str, object] = {}
    for name, value in zip(PRINTED, triplets(matrix).tolist(), strict=True):
        cells |= {f"printed {name}": printed[name], f"counted {name}": value}
    return cells


def pooled_data(options: ResultsOptions) -> Table:
    """All clients' data together, class by attribute (FedDiverse, Table 5): printed and counted."""
    printed = read_published(PUBLISHED / "feddiverse_table5.csv")
    rows = []
    for setting in dict.fromkeys(printed["setting"]):
        pooled = Interaction(distribution=setting).matrices().sum(axis=0)
        lines = printed[printed["setting"] == setting].set_index("metric")
        matrix, counted = str(lines.loc["interaction_matrix", "matrix"]), _text(pooled)
        row = {"setting": setting, "printed matrix": matrix, "counted matrix": counted}
        row["same"] = _same(matrix, counted)
        rows.append(row | _beside({name: lines.loc[key, "mean"] for name, key in PRINTED.items()}, pooled))
    title = "FedDiverse (2025), Table 5: pooled training data of the settings"
    return text_table("feddiverse_table5_data", title, pd.DataFrame(rows), (TRIPLETS,), decimals=2)


def client_types(options: ResultsOptions) -> Table:
    """The types of clients of each setting (FedDiverse, Table 6): printed and counted."""
    printed = read_published(PUBLISHED / "feddiverse_table6.csv")
    rows = []
    for setting in dict.fromkeys(printed["setting"]):
        matrices_of_clients = Interaction(distribution=setting).matrices()
        clients = Counter(map(_text, matrices_of_clients))
        matrices = {_text(matrix): matrix for matrix in matrices_of_clients}
        lines = printed[printed["setting"] == setting]
        for (_, line), (text, matrix) in zip(lines.iterrows(), matrices.items(), strict=True):
            row = {
                "setting": setting,
                "type": int(line["client_type"]),
                "printed clients": int(line["n_clients"]),
                "clients": clients[text],
                "matrix": text,
                "as printed": _same(line["matrix"], text),
            }
            rows.append(row | _beside({name: line[name.lower()] for name in PRINTED}, matrix))
    title = "FedDiverse (2025), Table 6: types of clients"
    return text_table("feddiverse_table6", title, pd.DataFrame(rows), (TRIPLETS, REBUILT), decimals=2)

"""The data of FedDiverse's clients: its Tables 5 and 6, printed numbers beside those of the partitions that runs use.

Nemeth et al., FedDiverse, 2025, https://arxiv.org/abs/2504.11216, appendix A

Counted from the partitions at full size; neither data nor runs are needed. Accuracies of Table 5 (centralised SGD) are
runs, and stand in conf/table/feddiverse_table5*.yaml.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd

from benchmark.analyses.registry import Report, analysis
from benchmark.reports.published import PUBLISHED_FOLDER, read_published
from partitions.core.base import IntArray
from partitions.core.heterogeneity import triplet
from partitions.interaction import DISTRIBUTIONS, Interaction

PRINTED = {"CI": "class_imbalance", "AI": "attribute_imbalance", "SC": "spurious_correlation"}
"""The metrics of Table 5, and what they are called in the published file."""

TRIPLETS = (
    "CI, AI, SC: class imbalance, attribute imbalance, spurious correlation of the matrix (Eqs. 2-4), whose rows are "
    "classes and whose columns are attributes."
)


def _text(matrix: IntArray) -> str:
    """As the published files write a matrix."""
    return "; ".join(" ".join(str(count) for count in row) for row in matrix.tolist())


def _same(printed: object, counted: str) -> str:
    if not isinstance(printed, str):
        return "not printed"
    same = [row.split() for row in printed.split(";")] == [row.split() for row in counted.split(";")]
    return "yes" if same else "no"


@analysis("pooled-data", {"results": "FOLDER"})
def pooled_data(values: Mapping[str, str]) -> Report:
    """All clients' data together, class by attribute (FedDiverse, Table 5): printed and counted."""
    printed = read_published(PUBLISHED_FOLDER / "feddiverse_table5.csv")
    rows = []
    for setting in dict.fromkeys(printed["setting"]):
        pooled = Interaction(distribution=setting).matrices().sum(axis=0)
        lines = printed[printed["setting"] == setting].set_index("metric")
        counted = _text(pooled)
        row: dict[str, object] = {
            "setting": setting,
            "printed matrix": lines["matrix"].get("interaction_matrix", ""),
            "counted matrix": counted,
            "same": _same(lines["matrix"].get("interaction_matrix"), counted),
        }
        for (name, metric), value in zip(PRINTED.items(), triplet(pooled), strict=True):
            row |= {f"printed {name}": lines["mean"].get(metric, np.nan), f"counted {name}": value}
        rows.append(row)
    title = "FedDiverse (2025), Table 5: pooled training data of the settings"
    return Report("feddiverse_table5_data", title, pd.DataFrame(rows), (TRIPLETS,), decimals=2)


@analysis("client-types", {"results": "FOLDER"})
def client_types(values: Mapping[str, str]) -> Report:
    """The types of clients of each setting (FedDiverse, Table 6): printed and counted."""
    printed = read_published(PUBLISHED_FOLDER / "feddiverse_table6.csv")
    rows = []
    for setting in dict.fromkeys(printed["setting"]):
        # Table 6 adds up what stands in several blocks (the hundred clients).
        counts: dict[str, tuple[int, IntArray]] = {}
        for number, rows_of_matrix in DISTRIBUTIONS[setting]:
            matrix = np.array(rows_of_matrix)
            known = counts.get(_text(matrix), (0, matrix))[0]
            counts[_text(matrix)] = (known + number, matrix)
        lines = printed[printed["setting"] == setting]
        for (_, line), (text, (number, matrix)) in zip(lines.iterrows(), counts.items(), strict=True):
            found = dict(zip(PRINTED, triplet(matrix), strict=True))
            rows.append(
                {
                    "setting": setting,
                    "type": int(line["client_type"]),
                    "printed clients": int(line["n_clients"]),
                    "clients": number,
                    "matrix": text,
                    "as printed": _same(line["matrix"], text),
                    **{
                        f"{who} {name}": line[name.lower()] if who == "printed" else found[name]
                        for name in PRINTED
                        for who in ("printed", "counted")
                    },
                }
            )
    notes = (
        TRIPLETS,
        "The matrices of Spawrious GCI are damaged in the text copy; those compared here were rebuilt from the printed "
        "triplets and the pooled matrix of Table 5.",
    )
    title = "FedDiverse (2025), Table 6: types of clients"
    return Report("feddiverse_table6", title, pd.DataFrame(rows), notes, decimals=2)

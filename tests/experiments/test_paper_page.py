"""docs/paper_size.md's table of data sets beside the loaders' facts."""

import re

import datasets
from benchmark.experiments.plan import plan
from benchmark.experiments.tables import find_specs
from benchmark.paths import ROOT


def test_the_documents_table_of_data_sets() -> None:
    """Every set of preset paper, with the tables that use it, its counts and its size, as the loaders state them."""
    text = (ROOT / "docs/paper_size.md").read_text()
    rows = {row.split("`")[1]: row for row in re.findall(r"^\| `\w+` \| Fed.*", text, re.MULTILINE)}
    tables: dict[str, set[tuple[str, int]]] = {}
    for spec in find_specs():
        if spec.table and "paper" in spec.presets:
            for cell in plan(spec, "paper", [0]).values():
                for run in cell.runs:
                    tables.setdefault(run.dataset.name, set()).add((spec.paper, spec.table))
                    facts = datasets.facts(run.dataset.name, run.dataset.options)
                    row = rows[run.dataset.name]
                    if facts is not None:
                        assert f"{facts.train:,}" in row and f"{facts.size} px" in row
                        assert not facts.test or f"{facts.test:,}" in row
    assert set(rows) == set(tables)
    for name, used in tables.items():
        cell = rows[name].split("|")[2].strip()
        paper, _, numbers = cell.partition(" ")
        stated = set()
        for part in numbers.split(", "):
            first, _, last = part.partition("-")
            stated |= {(paper.lower(), k) for k in range(int(first), int(last or first) + 1)}
        assert stated == used, name

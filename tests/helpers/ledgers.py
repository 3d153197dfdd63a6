"""Ledgers of the fidelity page that a test writes by itself."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from benchmark.fidelity.ledger import PAPERS

ENTRY: dict[str, Any] = {
    "id": "toy-norm",
    "title": "Norm of the toy | term",
    "paper": "Squared.",
    "code": "Not squared.",
    "default": "Squared.",
    "base": {"method": "fedprox"},
    "switch": {"method.client.fedprox.prox_norm": ["squared", "unsquared_per_tensor"]},
}


def write_ledger(folder: Path, *entries: Mapping[str, Any]) -> Path:
    """A file for each paper: the first with ``entries``, the others with one entry without a switch."""
    for paper in PAPERS:
        rest = {**ENTRY, "id": f"{paper}-none", "switch": {}, "no_switch": "There is no choice."}
        content = {
            "paper": paper,
            "title": paper,
            "sources": [{"repository": "nobody/nothing", "commit": "1234567"}],
            "entries": list(entries) if paper == "fedld" and entries else [rest],
        }
        (folder / f"{paper}.yaml").write_text(yaml.safe_dump(content))
    return folder

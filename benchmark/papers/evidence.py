"""The tables and pictures of docs/results.md, from results/claims.yaml and the committed values by seed."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
import yaml

from benchmark.papers.draw_results import FOREST, draw_forest
from benchmark.paths import ROOT
from benchmark.reports.claims import verdict
from benchmark.reports.statistics import Difference, Interval, Summary, holm, paired_difference, welch

RESULTS = ROOT / "results"


class Claim(NamedTuple):
    """One difference: as printed, as others have it, and as measured here."""

    label: str
    published: Difference | None
    others: Difference | None
    here: Difference | None


def claims() -> dict[str, list[Claim]]:
    """Those of results/claims.yaml, by paper."""
    chosen = yaml.safe_load((RESULTS / "claims.yaml").read_text(encoding="utf-8"))
    return {paper: [claim for entry in entries for claim in _of(entry)] for paper, entries in chosen.items()}


def _of(entry: dict[str, Any]) -> Iterator[Claim]:
    cells = _cells(RESULTS / entry["table"])
    if "others" in entry:
        cells["reproduced_seeds"] = _cells(RESULTS / entry["others"])["seeds"]
    ((row, name),) = entry["row"].items()
    form = f" ({entry['form']})" if "form" in entry else ""
    for column, where in entry["columns"].items():
        for base, other in entry["bases"].items():
            first, second = (cells.loc[(key, column)] for key in (row, base))
            known = first["published_mean"] + second["published_mean"]  # NaN if one of them is
            printed = None if pd.isna(known) else welch(_printed(first), _printed(second))
            others, here = (paired_difference(*map(seeds, (first, second))) for seeds in (_others, _by_seed))
            yield Claim(f"{name} - {other}, {where}{form}", printed, others, here)


def _cells(path: Path) -> pd.DataFrame:
    """A committed table by row and column. The files of results/published name the same things otherwise."""
    names = {"method": "row", "setting": "column", "mean": "published_mean", "std": "published_std"}
    cells = pd.read_csv(path, dtype={"seeds": str, "row": str})
    if "setting" in cells:
        cells = cells.rename(columns=names | {"n_seeds": "published_n"}).drop_duplicates(["row", "column"])
    return cells.set_index(["row", "column"]).sort_index()


def _printed(cell: pd.Series) -> Summary:
    """What the paper prints; a paper without standard deviations has no number of seeds either."""
    spread = not pd.isna(cell["published_std"])
    std, n = (float(cell["published_std"]), int(cell["published_n"])) if spread else (None, 0)
    return Summary(float(cell["published_mean"]), std, n)


def _by_seed(cell: pd.Series, name: str = "seeds") -> dict[int, float]:
    """``0=57.77;1=57.76`` as numbers. What others print has no seed; there runs of the same place are pairs."""
    values = [value for value in str(cell.get(name, "")).split(";") if value not in ("", "nan")]
    pairs = (value.split("=") if "=" in value else (place, value) for place, value in enumerate(values))
    return {int(seed): float(value) for seed, value in pairs}


def _others(cell: pd.Series) -> dict[int, float]:
    return _by_seed(cell, "reproduced_seeds")


def table(found: list[Claim]) -> str:
    """One line for each claim, with its verdict; Holm's correction is over all of them."""
    others = any(claim.others for claim in found)
    heads = ["difference", "published", *["others"] * others, "here", "seeds", "verdict"]
    lines = [heads, ["---"] * len(heads)]
    for claim, corrected in zip(found, holm([claim.here for claim in found]), strict=True):
        printed = [claim.published, *[claim.others] * others, claim.here]
        seeds = str(claim.here.n) if claim.here else ""
        lines.append([claim.label, *map(_short, printed), seeds, _verdict(claim, corrected)])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _verdict(claim: Claim, corrected: Interval | None) -> str:
    if claim.here is None:
        return "not run here"
    words = verdict(claim.here, claim.published, corrected).split("; ")
    short = {"not resolved after Holm's correction": "not after Holm"}
    return "; ".join(short.get(word, word) for word in words if "published" not in word)


def _short(found: Difference | None) -> str:
    if found is None:
        return ""
    return f"{found.mean:+.1f}" + (" [{:.1f},\u00a0{:.1f}]".format(*found.interval) if found.interval else "")


def draw() -> None:
    """docs/images/results_<paper>.png for each paper."""
    for paper, found in claims().items():
        lines = [
            (claim.label, source, difference.mean, *(difference.interval or (None, None)))
            for claim in found
            for source, difference in zip(FOREST, claim[1:], strict=True)
            if difference
        ]
        data = pd.DataFrame(lines, columns=["cell", "source", "difference", "low", "high"])
        figure = draw_forest(data, "difference in points", width=9.0)
        figure.savefig(ROOT / "docs" / "images" / f"results_{paper}.png", dpi=110)


def results() -> str:
    """docs/results.md with the tables between its marks made anew."""
    text = (ROOT / "docs" / "results.md").read_text(encoding="utf-8")
    for paper, found in claims().items():
        start, end = f"<!-- claims of {paper} -->", "<!-- end -->"
        before, mark, rest = text.partition(start)
        text = f"{before}{mark}\n\n{table(found)}\n\n{end}{rest.partition(end)[2]}"
    return text

"""The tables and pictures of docs/results.md, from results/claims.yaml and the committed values by seed.

And the tables of the leaderboard's page, from its stored version.
"""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import pandas as pd
import yaml

from benchmark.papers.draw_results import FOREST, draw_forest
from benchmark.papers.frozen import COMMITTED
from benchmark.paths import ROOT
from benchmark.reports.claims import verdict
from benchmark.reports.published import Published, printed_difference, read_published
from benchmark.reports.statistics import Difference, Interval, holm, paired_difference

RESULTS = ROOT / "results"

LEADERBOARD = COMMITTED / "README.md"

NAMES = {"method": "row", "setting": "column", "mean": "published_mean", "std": "published_std",
         "n_seeds": "published_n", "seeds": "reproduced_seeds"}  # fmt: skip
"""Columns of the files of results/published -> those of tables."""

Line = dict[str, str]


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
    cells = _cells(entry["table"])
    repeated = _cells(entry["others"]) if "others" in entry else cells
    ((row, name),) = entry["row"].items()
    form = f" ({entry['form']})" if "form" in entry else ""
    for column, where in entry["columns"].items():
        for base, other in entry["bases"].items():
            pair = (row, column), (base, column)
            printed = printed_difference(*(_printed(cells[key]) for key in pair))
            others = paired_difference(*(_repeated(repeated.get(key, {})) for key in pair))
            here = paired_difference(*(by_seed(cells[key]) for key in pair))
            yield Claim(f"{name} - {other}, {where}{form}", printed, others, here)


def _cells(name: str) -> dict[tuple[str, str], Line]:
    """The lines of a committed table by row and column; files of results/published get the names of tables."""
    frame = read_published(RESULTS / name)
    if "setting" in frame:
        frame = frame.rename(columns=NAMES)
    lines: dict[tuple[str, str], Line] = {}
    for line in frame.to_dict("records"):
        lines.setdefault((line["row"], line["column"]), line)
    return lines


def _printed(line: Line) -> Published:
    return Published(*(line.get(f"published_{name}", "") for name in ("mean", "std", "n")))


def _repeated(line: Line) -> dict[int, float]:
    return Published(seeds=line.get("reproduced_seeds", "")).values


def by_seed(line: Line) -> dict[int, float]:
    """``0=57.77;1=57.76;2=diverged`` as numbers, without words; nothing in the files of results/published."""
    pairs = (pair.split("=") for pair in line.get("seeds", "").split(";") if pair)
    return {int(seed): float(value) for seed, value in pairs if not value[:1].isalpha()}


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
    said = {"no published number", "published without spread"}  # by the column of published numbers
    return "; ".join(short.get(word, word) for word in words if word not in said)


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
        figure.savefig(ROOT / "docs" / "images" / f"results_{paper}.png", dpi=110, bbox_inches="tight")


def results() -> str:
    """docs/results.md with the tables between its marks made anew."""
    text = (ROOT / "docs" / "results.md").read_text(encoding="utf-8")
    return _filled(text, {f"claims of {paper}": table(found) for paper, found in claims().items()})


def leaderboard() -> str:
    """results/leaderboard/README.md with the tables between its marks made anew."""
    ranks = pd.read_csv(COMMITTED / "ranks.csv")
    tracks = {f"{track} track": above_and_below(part) for track, part in ranks.groupby("track")}
    return _filled(LEADERBOARD.read_text(encoding="utf-8"), tracks)


def above_and_below(ranks: pd.DataFrame) -> str:
    """A line for each data set: methods whose interval excludes zero, and those without a value in each run."""
    methods = ranks.set_index("method").dropna(axis="columns", how="all")
    names = {"FedAvg": "FedAvg", "FedAvg without momentum": "without momentum"}
    bases = [name for name in names if name in methods.index]
    heads = ["data set", *(names[name] for name in bases), "above FedAvg", "below FedAvg", "diverged"]
    lines = [heads, ["---"] * len(heads)]
    for label in (name.removesuffix(" difference") for name in methods if name.endswith(" difference")):
        above = methods[methods[f"{label} low"] > 0].sort_values(f"{label} difference", ascending=False)
        below = methods[methods[f"{label} high"] < 0].sort_values(f"{label} difference")
        sides = [[_resolved(line, label) for _, line in side.iterrows()] for side in (above, below)]
        whole = methods[label].notna() & methods.reindex(columns=[f"{label} n"]).isna().all(axis="columns")
        values = [f"{methods.loc[name, label]:.1f} %" for name in bases]
        lines.append([label, *values, *map("<br>".join, sides), ", ".join(methods.index[~whole])])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _resolved(line: pd.Series, label: str) -> str:
    low, high = (line.get(f"{label} holm {end}", 0.0) for end in ("low", "high"))
    star = "\\*" * (low > 0 or high < 0)
    values = (line[f"{label} {name}"] for name in ("difference", "low", "high"))
    return f"{line.name}{star} {{:+.1f}} [{{:.1f}},\u00a0{{:.1f}}]".format(*values)


def _filled(text: str, tables: Mapping[str, str]) -> str:
    """``text`` with each table between ``<!-- its name -->`` and ``<!-- end -->``."""
    for name, lines in tables.items():
        mark, end = f"<!-- {name} -->", "<!-- end -->"
        before, rest = text.split(mark)  # a page without the mark is an error
        text = f"{before}{mark}\n\n{lines}\n\n{end}{rest.partition(end)[2]}"
    return text

"""Printed inconsistencies of the papers: the list of ``results/published/README.md``, and its arithmetic done again.

Numbers are exact decimals, as printed in the papers' tables (``results/published/*.csv``).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Decimal
from functools import cache
from pathlib import Path

from benchmark.errors import ConfigError
from benchmark.reports.published import PUBLISHED_FOLDER, read_published

AVERAGE_TOLERANCE = Decimal("0.005")
"""A printed mean of five is right if it is at most this far off: half of its last digit."""

DIFFERENCE_TOLERANCE = Decimal("0.01")
"""A printed difference is right if it is less than its last digit off (both sides were rounded, or cut off)."""


@dataclass(frozen=True)
class Sum:
    """A piece of arithmetic on printed numbers.

    ``id``: the inconsistency that it belongs to, empty for a printed number that agrees. ``text``: the arithmetic in
    words and numbers. ``values``: what was computed.
    """

    id: str
    text: str
    values: tuple[Decimal, ...] = ()


NAMES = {
    "fedavg": "FedAvg",
    "fedavgm": "FedAvgM",
    "fedavgm+fedprox": "FedAvgM+FedProx",
    "fedprox": "FedProx",
    "fedproc": "FedProc",
    "fednova": "FedNova",
    "moon": "MOON",
    "feddyn": "FedDyn",
    "feddc": "FedDC",
    "fedadam": "FedAdam",
    "fedyogi": "FedYogi",
    "fedadagrad": "FedAdagrad",
    "feddisco": "FedDisco",
    "isfl": "ISFL",
    "fedsdc": "FedSDC",
    "fedpac": "FedPAC",
    "fedbn": "FedBN",
    "fedgh": "FedGH",
    "powd": "pow-d",
    "fedpns": "FedPNS",
    "hcsfed": "HCSFed",
    "round_robin": "round robin",
    "uniform": "uniform",
}


def number(value: Decimal, digits: int = 2, sign: bool = False) -> str:
    """``value`` rounded half up, with an explicit sign if asked for."""
    rounded = value.quantize(Decimal(1).scaleb(-digits), ROUND_HALF_UP)
    return f"{rounded:+}" if sign else str(rounded)


def plain(value: Decimal) -> str:
    """``value`` with as many digits as it has, trailing zeros left out."""
    return f"{value.normalize():f}"


class Printed:
    """The printed numbers of one table."""

    def __init__(self, table: str, folder: Path = PUBLISHED_FOLDER) -> None:
        """Read ``<table>.csv``."""
        self.lines = read_published(folder / f"{table}.csv").to_dict("records")
        keys = ("method", "setting", "metric", "selection")
        self._cells = {tuple(line.get(key, "") for key in keys): line for line in self.lines}

    def text(self, method: str, setting: str, metric: str, selection: str = "") -> str:
        """A cell as printed; empty where it was lost in the copy. `ConfigError` if there is no such cell."""
        line = self._cells.get((method, setting, metric, selection))
        if line is None:
            raise ConfigError(
                f"published: no cell {method}, {setting}, {metric}, {selection or 'no selection'}."
            )
        return str(line["mean"])

    def value(self, method: str, setting: str, metric: str, selection: str = "") -> Decimal:
        """A cell as a number."""
        return Decimal(self.text(method, setting, metric, selection))

    def spread(self, method: str, setting: str, metric: str, selection: str = "") -> str:
        """The printed plus-minus number of a cell."""
        return str(self._cells[method, setting, metric, selection]["std"])


# The list --------------------------------------------------------------------------------------------------------

PREFIX = {"LD": "fedld", "SDC": "fedsdc", "DIV": "feddiverse", "MR": "fedmr"}


def inconsistencies(text: str | None = None) -> dict[str, dict[str, str]]:
    """Paper -> id -> what is inconsistent, in the order of the list.

    ``text``: a Markdown file in which an id in bold begins a list item or a row of a table under a heading row;
    without it, ``results/published/README.md``.
    """
    if text is None:
        text = (PUBLISHED_FOLDER / "README.md").read_text(encoding="utf-8")
    found: dict[str, dict[str, str]] = {paper: {} for paper in PREFIX.values()}
    heads: list[str] = []
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip("| ").split("|")] if line.startswith("|") else []
        if cells and cells[0] == "cell":
            heads = cells
        match = re.match(r"(?:- |\| )\*\*((LD|SDC|DIV|MR)-\d+)\*\* *(.*)", line)
        if match:
            name, prefix, rest = match[1], match[2], match[3]
            if cells:
                about = cells[0].partition("** ")[2]
                facts = [
                    cell if head == "remark" else f"{head} {cell}"
                    for head, cell in zip(heads[1:], cells[1:], strict=True)
                ]
                rest = f"{about}: {', '.join(facts)}"
            # "Above" is a place in that file.
            found[PREFIX[prefix]][name] = rest.replace(", see above", "")
    return found


# The arithmetic --------------------------------------------------------------------------------------------------

FEDMR_PARTITIONS = {
    "fmnist": ("p5c2", "p10c2", "p10c3", "p10c5", "iid"),
    "svhn": ("p5c2", "p10c2", "p10c3", "p10c5", "iid"),
    "cifar10": ("p5c2", "p10c2", "p10c3", "p10c5", "iid"),
    "cifar100": ("p10c10", "p10c20", "p10c30", "p10c50", "iid"),
}
FEDMR_BASELINES = ("fedavg", "fedprox", "fedproc", "fednova", "moon", "feddyn", "feddc")

WRONG_AVERAGES = {
    ("fmnist", "fedmr"): "MR-1",
    ("fmnist", "moon"): "MR-2",
    ("svhn", "fednova"): "MR-3",
    ("cifar10", "fedavg"): "MR-4",
    ("cifar100", "feddyn"): "MR-5",
}
WRONG_DIFFERENCES = {
    ("fmnist/avg", "improvement_over_fedavg"): "MR-6",
    ("fmnist/avg", "delta_over_best_baseline"): "MR-6",
    ("cifar100/avg", "delta_over_best_baseline"): "MR-7",
    ("svhn/p5c2", "delta_over_best_baseline"): "MR-8",
    ("cifar10/p10c2", "improvement_over_fedavg"): "MR-9",
}
UNLISTED = "unlisted"
"""Id of a disagreement that the list does not have; a test holds that there is none."""


def _named(right: bool, name: str | None) -> str:
    """The id of a comparison: none for one that agrees and is not listed."""
    return (name or "") if right else (name or UNLISTED)


def fedmr_averages() -> Iterator[Sum]:
    """Table 1: each printed average against the mean of the five printed partitions."""
    table = Printed("fedmr_table1")
    for dataset, partitions in FEDMR_PARTITIONS.items():
        for method in (*FEDMR_BASELINES, "fedmr"):
            parts = [table.value(method, f"{dataset}/{part}", "accuracy") for part in partitions]
            mean = sum(parts, Decimal(0)) / len(parts)
            printed = table.value(method, f"{dataset}/avg", "accuracy")
            off = printed - mean
            name = WRONG_AVERAGES.get((dataset, method))
            text = f"({' + '.join(map(str, parts))}) / 5 = {plain(mean)}; printed {printed}, {number(off, 3, True)}"
            yield Sum(_named(abs(off) <= AVERAGE_TOLERANCE, name), text, (mean, off))


def fedmr_differences() -> Iterator[Sum]:
    """Table 1: each printed improvement over FedAvg and Delta over the best baseline against the cells."""
    table = Printed("fedmr_table1")

    def accuracy(method: str, dataset: str, partition: str) -> Decimal:
        if partition != "avg":
            return table.value(method, f"{dataset}/{partition}", "accuracy")
        parts = [table.value(method, f"{dataset}/{part}", "accuracy") for part in FEDMR_PARTITIONS[dataset]]
        return sum(parts, Decimal(0)) / len(parts)

    for dataset, partitions in FEDMR_PARTITIONS.items():
        for partition in (*partitions, "avg"):
            own = accuracy("fedmr", dataset, partition)
            best = max(FEDMR_BASELINES, key=lambda method: accuracy(method, dataset, partition))
            for metric, against in (
                ("improvement_over_fedavg", "fedavg"),
                ("delta_over_best_baseline", best),
            ):
                setting = f"{dataset}/{partition}"
                other = accuracy(against, dataset, partition)
                printed = table.value("fedmr", setting, metric)
                name = WRONG_DIFFERENCES.get((setting, metric))
                what = (
                    "improvement over FedAvg"
                    if against == "fedavg" and "imp" in metric
                    else f"Delta over {NAMES[against]}"
                )
                text = f"{what}: {plain(own)} - {plain(other)} = {number(own - other, sign=True)}; printed {printed}"
                yield Sum(
                    _named(abs(own - other - printed) < DIFFERENCE_TOLERANCE, name), text, (own - other,)
                )


def fedmr_scale() -> Iterator[Sum]:
    """Table 2 and the text about it: lost Deltas, the average lead, a cell that table 5 prints otherwise."""
    table, five = Printed("fedmr_table2"), Printed("fedmr_table5")
    for dataset, classes in (("cifar10", "c3"), ("cifar100", "c10")):
        deltas = []
        for clients in ("p10", "p50", "p100"):
            setting = f"{dataset}/{clients}{classes}"
            own = table.value("fedmr", setting, "accuracy")
            best = max(table.value(method, setting, "accuracy") for method in FEDMR_BASELINES)
            deltas.append(own - best)
            printed = table.text("fedmr", setting, "delta_over_best_baseline")
            if not printed:
                yield Sum(
                    "MR-10", f"{setting}: {own} - {best} = {number(own - best, sign=True)}", (own - best,)
                )
            else:
                yield Sum(_named(abs(own - best - Decimal(printed)) < DIFFERENCE_TOLERANCE, None), setting)
        mean = sum(deltas, Decimal(0)) / 3
        text = f"{dataset}: ({' + '.join(map(str, deltas))}) / 3 = {number(mean)}"
        yield Sum("MR-11", text, (mean,))
    cells = [each.value("fedavg", "cifar100/p50c10", "accuracy") for each in (table, five)]
    nova = table.value("fednova", "cifar100/p50c10", "accuracy")
    yield Sum(
        "MR-12", f"table 2: {cells[0]}; table 5: {cells[1]}; FedNova in table 2: {nova}", (*cells, nova)
    )


def fedmr_others() -> Iterator[Sum]:
    """Tables 1, 3, 5, 6, 7 against what the text says of them."""
    one, three, five = Printed("fedmr_table1"), Printed("fedmr_table3"), Printed("fedmr_table5")
    six, seven = Printed("fedmr_table6"), Printed("fedmr_table7")
    half, most = (five.value(f"fedmr_proto{n}", "cifar10/p10c3", "accuracy") for n in (50, 80))
    yield Sum("MR-13", f"{most} - {half} = {number(most - half, sign=True)}", (most - half,))
    for dataset in ("svhn", "cifar100"):
        own, other = (one.value(method, f"{dataset}/iid", "accuracy") for method in ("fedmr", "fedproc"))
        text = f"{dataset} IID, over FedProc: {own} - {other} = {number(own - other, sign=True)}"
        yield Sum("MR-14", text, (own - other,))
    inter, intra = (six.value(f"fedmr_{part}", "svhn/avg", "accuracy") for part in ("inter", "intra"))
    yield Sum(
        "MR-15",
        f"SVHN, inter - intra: {inter} - {intra} = {number(inter - intra, sign=True)}",
        (inter - intra,),
    )

    def spread(method: str, partition: str) -> Decimal:
        return seven.value(method, f"cifar10/{partition}", "top50_eigenvalue_variance")

    wide, narrow = spread("fedavg", "p10c2"), spread("fedavg", "p5c2")
    yield Sum("MR-16", f"FedAvg, P10C2 - P5C2: {wide} - {narrow} = {wide - narrow:+}", (wide - narrow,))
    for partition, base in (("p5c2", narrow), ("p10c2", wide)):
        nova = spread("fednova", partition)
        text = f"{partition.upper()}, FedNova - FedAvg: {nova} - {base} = {nova - base:+}"
        yield Sum("MR-16", text, (nova - base,))
    for dataset in ("fmnist", "svhn", "cifar10", "cifar100", "isic2019"):
        without, with_ = (
            three.value(f"{word}_prototypes", dataset, "parameters_sent_per_round")
            for word in ("without", "with")
        )
        cost = 100 * (with_ - without) / without
        printed = three.text("with_prototypes", dataset, "additional_cost")
        right = number(cost, 3) == printed
        text = f"{dataset}: ({with_} - {without}) / {without} = {number(cost, 4)} %; printed {printed}"
        yield Sum("" if right else "MR-17", text, (cost,))


def fedld() -> Iterator[Sum]:
    """Table 1 against the gains that the text quotes; L = 0.8 m."""
    table = Printed("fedld_table1")
    yield Sum("LD-1", "alpha of splits 1, 2, 3: 100, 0.1, 0.5 (MICCAI); 100, 1.0, 0.5 (arXiv)")
    for setting in ("retina_split1", "retina_split2", "retina_split3", "covid_fl"):
        cells = {
            m: table.value(m, setting, "accuracy")
            for m in ("fedavg", "fedprox", "fedbn", "fedpac", "fedgh", "fedld")
        }
        own = cells.pop("fedld")
        second = max(cells, key=lambda method: cells[method])
        gain, lead = own - cells["fedgh"], own - cells[second]
        text = f"{setting}: over FedGH {own} - {cells['fedgh']} = {number(gain, sign=True)}"
        if second != "fedgh":
            text += f"; second best is {NAMES[second]}: {own} - {cells[second]} = {number(lead, sign=True)}"
        yield Sum("LD-2", text, (gain, lead))
    axes = Decimal("0.8") * 12
    yield Sum("LD-5", f"0.8 x 12 = {axes}", (axes,))


def fedsdc() -> Iterator[Sum]:
    """Tables 1 and 2: cells that print the same, and gains that the text speaks of."""
    one, two = Printed("fedsdc_table1"), Printed("fedsdc_table2")

    def cell(table: Printed, method: str, setting: str) -> str:
        return f"{table.text(method, setting, 'micro_f1')} ± {table.spread(method, setting, 'micro_f1')}"

    for setting, methods in (("niid2", ("fedyogi", "fedprox")), ("niid1", ("fedprox", "fedavgm"))):
        yield Sum("SDC-3", f"{setting}: " + ", ".join(f"{NAMES[m]} {cell(one, m, setting)}" for m in methods))
    yield Sum("SDC-4", f"M3 {cell(two, 'fedsdc_m3', 'niid1')}, FedAvgM {cell(one, 'fedavgm', 'niid1')}")
    baselines = ("fedavgm", "fedadam", "fedyogi", "fedadagrad", "fedprox", "feddisco", "isfl")
    for setting in ("niid1", "niid2"):
        cells = {m: one.value(m, setting, "micro_f1") for m in baselines}
        best, own = max(cells, key=lambda method: cells[method]), one.value("fedsdc", setting, "micro_f1")
        text = (
            f"{setting}, over {NAMES[best]}: {own} - {cells[best]} = {number(own - cells[best], sign=True)}"
        )
        yield Sum("SDC-5", text, (own - cells[best],))
    plus = one.value("fedsdc_plus", "iid", "micro_f1")
    for method in ("fedsdc", "fedavgm", "feddisco"):
        other = one.value(method, "iid", "micro_f1")
        yield Sum(
            "SDC-6",
            f"under {NAMES[method]}: {plus} - {other} = {number(plus - other, sign=True)}",
            (plus - other,),
        )
    yield Sum("SDC-8", "IID: 0.8 x 17,092 = 13,673.6; printed 11,630", (Decimal("0.8") * 17092,))
    yield Sum("SDC-8", "NIID-1: 10,015 - 7 x 30 = 9,805", (Decimal(10015 - 7 * 30),))
    bounds = (Decimal(15 * 5 * 20), Decimal(15 * 6 * 60))
    yield Sum(
        "SDC-8", f"NIID-2: 15 x 5 x 20 = {bounds[0]:,} to 15 x 6 x 60 = {bounds[1]:,}; printed 3,115", bounds
    )


DIV_OPTIMIZERS = ("fedavg", "fedavgm", "fedprox", "fedavgm+fedprox")
DIV_SETTINGS = (
    "spawrious_gsc",
    "spawrious_gci",
    "spawrious_gai",
    "waterbirds_dist",
    "spawrious4",
    "cmnist_gsc",
)


def feddiverse_selection() -> Iterator[Sum]:
    """Table 3: FedDiverse minus uniform for every optimizer and data set."""
    table = Printed("feddiverse_table3")
    for method in DIV_OPTIMIZERS:
        for setting in DIV_SETTINGS:
            own, other = (
                table.value(method, setting, "worst_group_accuracy", s) for s in ("feddiverse", "uniform")
            )
            text = f"{NAMES[method]}, {setting}: {own} - {other} = {number(own - other, sign=True)}"
            yield Sum("" if own > other else "DIV-1", text, (own - other,))


def feddiverse_ablation() -> Iterator[Sum]:
    """Tables 4 and 8: what known triplets, a sent matrix and more pre-training change."""
    four, eight = Printed("feddiverse_table4"), Printed("feddiverse_table8")

    def cell(method: str, rounds: int, way: str) -> Decimal:
        return four.value(method, f"waterbirds_dist/t0={rounds}/{way}", "worst_group_accuracy", "feddiverse")

    for way, what in (("known/dht", "known triplets"), ("known/matrix", "known matrix sent")):
        for method in ("fedavg", "fedavgm"):
            gains = {t: cell(method, t, way) - cell(method, t, "predicted/dht") for t in (1, 20)}
            best = max(gains, key=lambda t: gains[t])
            pair = f"{cell(method, best, way)} - {cell(method, best, 'predicted/dht')}"
            text = f"{what}, {NAMES[method]}, T0 = {best}: {pair} = {number(gains[best], sign=True)}"
            yield Sum("DIV-2", text, (gains[best],))
    for method in ("fedavgm", "fedavg"):
        steps = [
            cell(method, 20, way) - cell(method, 1, way)
            for way in ("predicted/dht", "known/dht", "known/matrix")
        ]
        text = (
            f"table 4, {NAMES[method]}, T0 20 - T0 1: {', '.join(number(step, sign=True) for step in steps)}"
        )
        yield Sum("DIV-3", text, tuple(steps))
    curve = {
        t: eight.value("fedavgm", f"waterbirds_dist/t0={t}", "worst_group_accuracy", "feddiverse")
        for t in (1, 5, 10, 15, 20, 30)
    }
    below = [t for t in curve if curve[t] < curve[1]]
    text = f"table 8, FedAvgM: {', '.join(f'T0 {t}: {value}' for t, value in curve.items())}"
    yield Sum("DIV-3", f"{text}; below T0 1: {', '.join(map(str, below))}", tuple(map(Decimal, below)))
    errors = [
        (eight.text(m, "waterbirds_dist/t0=5", "dht_error", "feddiverse"),
         eight.spread(m, "waterbirds_dist/t0=5", "dht_error", "feddiverse")) for m in ("fedavg", "fedavgm")
    ]  # fmt: skip
    yield Sum("DIV-7", "T0 = 5: " + " and ".join(f"{mean} ± {std}" for mean, std in errors))


def _matrix(text: str) -> list[list[int]]:
    return [[int(value) for value in row.split()] for row in text.split(";")]


def feddiverse_clients() -> Iterator[Sum]:
    """Table 6: which kind of heterogeneity leads at how many clients, and how large the clients are."""
    lines = Printed("feddiverse_table6").lines
    leaders: dict[str, int] = {}
    for line in (line for line in lines if line["setting"] == "spawrious_gai"):
        triplet = {kind.upper(): Decimal(line[kind]) for kind in ("ci", "ai", "sc")}
        top = "/".join(kind for kind in triplet if triplet[kind] == max(triplet.values()))
        leaders[top] = leaders.get(top, 0) + int(line["n_clients"])
    total = sum(leaders.values())
    shares = {kind: Decimal(100 * count) / total for kind, count in leaders.items()}
    counts = ", ".join(f"{kind} {leaders[kind]}" for kind in ("CI", "AI", "SC", "CI/AI"))
    out = " / ".join(plain(shares[kind]) for kind in ("CI", "AI", "SC"))
    together = shares["AI"] + shares["CI/AI"]
    text = (
        f"largest index (printed to two decimals) at {counts} of {total} clients: {out} % without the ties, "
        f"AI {plain(together)} % with them; printed 12 / 60 / 8, sum {12 + 60 + 8}"
    )
    yield Sum("DIV-4", text, (shares["CI"], shares["AI"], shares["SC"], together))
    sizes = sorted(
        {sum(map(sum, _matrix(line["matrix"]))) for line in lines if line["setting"] == "spawrious4"}
    )
    yield Sum(
        "DIV-12", f"images of a spawrious4 client: {', '.join(map(str, sizes))}", tuple(map(Decimal, sizes))
    )


def feddiverse_others() -> Iterator[Sum]:
    """Tables 1 and 5: who is ahead of whom."""
    one, five = Printed("feddiverse_table1"), Printed("feddiverse_table5")
    indices = [
        five.text("", "spawrious_gai", name)
        for name in ("class_imbalance", "attribute_imbalance", "spurious_correlation")
    ]
    yield Sum(
        "DIV-13",
        f"spawrious_gai: CI {indices[0]}, AI {indices[1]}, SC {indices[2]}",
        tuple(map(Decimal, indices)),
    )
    for setting in (*DIV_SETTINGS, "spawrious_gci100"):
        rows = ("uniform", "round_robin", "fednova", "powd", "fedpns", "hcsfed")
        cells = {m: one.text(m, setting, "worst_group_accuracy") for m in rows}
        best = max((m for m in rows if cells[m]), key=lambda m: Decimal(cells[m]))
        own, other = one.value("feddiverse", setting, "worst_group_accuracy"), Decimal(cells[best])
        text = f"{setting}, over {NAMES[best]}: {own} - {other} = {number(own - other, sign=True)}"
        yield Sum("DIV-14" if own < other else "", text, (own - other,))
    for setting in DIV_SETTINGS:
        own = one.value("feddiverse", setting, "worst_group_accuracy")
        central = five.value("centralized_sgd", setting, "worst_group_accuracy")
        text = f"{setting}: {own} - {central} = {number(own - central, sign=True)}"
        yield Sum("DIV-17", text, (own - central,))


PARTS: Mapping[str, tuple[Callable[[], Iterable[Sum]], ...]] = {
    "fedld": (fedld,),
    "fedsdc": (fedsdc,),
    "feddiverse": (feddiverse_selection, feddiverse_ablation, feddiverse_clients, feddiverse_others),
    "fedmr": (fedmr_averages, fedmr_differences, fedmr_scale, fedmr_others),
}

COUNTED = {
    feddiverse_selection: "gains of FedDiverse over uniform in table 3 (claimed to be all positive)",
    fedmr_averages: "averages of table 1",
    fedmr_differences: "improvements and Deltas of table 1",
}
"""What compares every number of its kind, so that those that agree are worth counting."""


@cache
def pieces(part: Callable[[], Iterable[Sum]]) -> tuple[Sum, ...]:
    """All arithmetic of one part."""
    return tuple(part())


def arithmetic(name: str) -> list[Sum]:
    """The arithmetic that belongs to the inconsistency ``name``."""
    return [piece for parts in PARTS.values() for part in parts for piece in pieces(part) if piece.id == name]


def agreeing(paper: str) -> list[str]:
    """How many of the printed numbers of a kind agree, in words."""
    found = []
    for part in PARTS[paper]:
        if part in COUNTED:
            right = sum(not piece.id for piece in pieces(part))
            found.append(f"{right} of {len(pieces(part))} {COUNTED[part]}")
    return found

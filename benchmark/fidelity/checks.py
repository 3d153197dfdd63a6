"""The arithmetic of the printed inconsistencies, done again from the papers' tables.

Each function yields the pieces of one kind. A piece without an id is a printed number that agrees.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from decimal import Decimal
from functools import cache

from benchmark.fidelity.printed import NAMES, Printed, Sum, minus, number, plain

AVERAGE_TOLERANCE = Decimal("0.005")
"""A printed mean of five is right if it is at most this far off: half of its last digit."""

DIFFERENCE_TOLERANCE = Decimal("0.01")
"""A printed difference is right if it is less than its last digit off (both sides were rounded, or cut off)."""

UNLISTED = "unlisted"
"""Id of a disagreement that the list does not have; a test checks that there is none."""

SPREAD_TABLE = "fedmr_table7"

DIFFERENCES = (
    ("MR-13", "", "fedmr_table5", "cifar10/p10c3", "fedmr_proto80", "fedmr_proto50"),
    ("MR-14", "svhn IID, over FedProc: ", "fedmr_table1", "svhn/iid", "fedmr", "fedproc"),
    ("MR-14", "cifar100 IID, over FedProc: ", "fedmr_table1", "cifar100/iid", "fedmr", "fedproc"),
    ("MR-15", "SVHN, inter - intra: ", "fedmr_table6", "svhn/avg", "fedmr_inter", "fedmr_intra"),
    ("MR-16", "P5C2, FedNova - FedAvg: ", "fedmr_table7", "cifar10/p5c2", "fednova", "fedavg"),
    ("MR-16", "P10C2, FedNova - FedAvg: ", "fedmr_table7", "cifar10/p10c2", "fednova", "fedavg"),
    ("SDC-6", "under FedSDC: ", "fedsdc_table1", "iid", "fedsdc_plus", "fedsdc"),
    ("SDC-6", "under FedAvgM: ", "fedsdc_table1", "iid", "fedsdc_plus", "fedavgm"),
    ("SDC-6", "under FedDisco: ", "fedsdc_table1", "iid", "fedsdc_plus", "feddisco"),
)
"""Inconsistency, label, table, setting, and the two methods whose difference is taken."""

FEDMR_PARTITIONS = {
    "fmnist": ("p5c2", "p10c2", "p10c3", "p10c5", "iid"),
    "svhn": ("p5c2", "p10c2", "p10c3", "p10c5", "iid"),
    "cifar10": ("p5c2", "p10c2", "p10c3", "p10c5", "iid"),
    "cifar100": ("p10c10", "p10c20", "p10c30", "p10c50", "iid"),
}
FEDMR_BASELINES = ("fedavg", "fedprox", "fedproc", "fednova", "moon", "feddyn", "feddc")
FEDSDC_BASELINES = ("fedavgm", "fedadam", "fedyogi", "fedadagrad", "fedprox", "feddisco", "isfl")
DIV_OPTIMIZERS = ("fedavg", "fedavgm", "fedprox", "fedavgm+fedprox")
DIV_SELECTIONS = ("uniform", "round_robin", "fednova", "powd", "fedpns", "hcsfed")
DIV_SETTINGS = tuple(
    "spawrious_gsc spawrious_gci spawrious_gai waterbirds_dist spawrious4 cmnist_gsc".split()
)

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


def _id(right: bool, listed: str | None) -> str:
    """The inconsistency of a comparison: none if it agrees and is not listed."""
    return listed or ("" if right else UNLISTED)


def _mean(values: Iterable[Decimal]) -> Decimal:
    known = list(values)
    return sum(known, Decimal(0)) / len(known)


def differences() -> Iterator[Sum]:
    """Differences of two methods in one setting, and of one method in two settings."""
    spread = Printed("fedmr_table7")
    wide, narrow = (spread.value("fedavg", f"cifar10/{partition}") for partition in ("p10c2", "p5c2"))
    yield minus("MR-16", "FedAvg, P10C2 - P5C2: ", wide, narrow, 0)
    for name, start, table, setting, first, second in DIFFERENCES:
        printed = Printed(table)
        digits = 0 if table == "fedmr_table7" else 2
        yield minus(name, start, printed.value(first, setting), printed.value(second, setting), digits)


# FedMR -----------------------------------------------------------------------------------------------------------


def fedmr_averages() -> Iterator[Sum]:
    """Table 1: each printed average against the mean of the five printed partitions."""
    table = Printed("fedmr_table1")
    for dataset, partitions in FEDMR_PARTITIONS.items():
        for method in (*FEDMR_BASELINES, "fedmr"):
            parts = [table.value(method, f"{dataset}/{part}") for part in partitions]
            printed, mean = table.value(method, f"{dataset}/avg"), _mean(parts)
            off = printed - mean
            text = f"({' + '.join(map(str, parts))}) / 5 = {plain(mean)}; printed {printed}, {number(off, 3, True)}"
            right = abs(off) <= AVERAGE_TOLERANCE
            yield Sum(_id(right, WRONG_AVERAGES.get((dataset, method))), text, (mean, off))


def fedmr_differences() -> Iterator[Sum]:
    """Table 1: each printed improvement over FedAvg and Delta over the best baseline against the cells."""
    table = Printed("fedmr_table1")

    def accuracy(method: str, setting: str) -> Decimal:
        dataset, _, partition = setting.partition("/")
        if partition != "avg":
            return table.value(method, setting)
        return _mean(table.value(method, f"{dataset}/{part}") for part in FEDMR_PARTITIONS[dataset])

    settings = [f"{name}/{part}" for name, parts in FEDMR_PARTITIONS.items() for part in (*parts, "avg")]
    for setting in settings:
        own = accuracy("fedmr", setting)
        best = max(FEDMR_BASELINES, key=lambda method: accuracy(method, setting))
        for metric, against, what in (
            ("improvement_over_fedavg", "fedavg", "improvement over FedAvg"),
            ("delta_over_best_baseline", best, f"Delta over {NAMES[best]}"),
        ):
            other, printed = accuracy(against, setting), table.value("fedmr", setting, metric=metric)
            right = abs(own - other - printed) < DIFFERENCE_TOLERANCE
            text = (
                f"{what}: {plain(own)} - {plain(other)} = {number(own - other, sign=True)}; printed {printed}"
            )
            yield Sum(_id(right, WRONG_DIFFERENCES.get((setting, metric))), text, (own - other,))


def fedmr_scale() -> Iterator[Sum]:
    """Table 2 and the text about it: lost Deltas, the average lead, a cell that table 5 prints otherwise."""
    table, five = Printed("fedmr_table2"), Printed("fedmr_table5")
    for dataset, classes in (("cifar10", "c3"), ("cifar100", "c10")):
        deltas = []
        for clients in ("p10", "p50", "p100"):
            setting = f"{dataset}/{clients}{classes}"
            own = table.value("fedmr", setting)
            best = table.value(table.best(FEDMR_BASELINES, setting), setting)
            deltas.append(own - best)
            printed = table.text("fedmr", setting, metric="delta_over_best_baseline")
            if not printed:
                yield minus("MR-10", f"{setting}: ", own, best)
            else:
                yield Sum(_id(abs(own - best - Decimal(printed)) < DIFFERENCE_TOLERANCE, None), setting)
        mean = _mean(deltas)
        text = f"{dataset}: ({' + '.join(map(str, deltas))}) / 3 = {number(mean)}"
        yield Sum("MR-11", text, (mean,))
    two, other = (each.value("fedavg", "cifar100/p50c10") for each in (table, five))
    nova = table.value("fednova", "cifar100/p50c10")
    yield Sum("MR-12", f"table 2: {two}; table 5: {other}; FedNova in table 2: {nova}", (two, other, nova))


def fedmr_costs() -> Iterator[Sum]:
    """Table 3: the printed cost of prototypes against the printed sizes."""
    table = Printed("fedmr_table3")
    for dataset in ("fmnist", "svhn", "cifar10", "cifar100", "isic2019"):
        without, with_ = (table.value(f"{word}_prototypes", dataset) for word in ("without", "with"))
        cost = 100 * (with_ - without) / without
        printed = table.text("with_prototypes", dataset, metric="additional_cost")
        text = f"{dataset}: ({with_} - {without}) / {without} = {number(cost, 4)} %; printed {printed}"
        yield Sum("" if number(cost, 3) == printed else "MR-17", text, (cost,))


# FedLD and FedSDC ------------------------------------------------------------------------------------------------


def fedld() -> Iterator[Sum]:
    """Table 1 against the gains that the text quotes; L = 0.8 m."""
    table = Printed("fedld_table1")
    yield Sum("LD-1", "alpha of splits 1, 2, 3: 100, 0.1, 0.5 (MICCAI); 100, 1.0, 0.5 (arXiv)")
    for setting in ("retina_split1", "retina_split2", "retina_split3", "covid_fl"):
        second = table.best(("fedavg", "fedprox", "fedbn", "fedpac", "fedgh"), setting)
        own = table.value("fedld", setting)
        gain = minus("LD-2", f"{setting}: over FedGH ", own, table.value("fedgh", setting))
        lead = minus("LD-2", f"; second best is {NAMES[second]}: ", own, table.value(second, setting))
        text = gain.text + (lead.text if second != "fedgh" else "")
        yield Sum("LD-2", text, gain.values + lead.values)
    axes = Decimal("0.8") * 12
    yield Sum("LD-5", f"0.8 x 12 = {axes}", (axes,))


def fedsdc() -> Iterator[Sum]:
    """Tables 1 and 2: cells that print the same, and gains that the text speaks of."""
    one, two = Printed("fedsdc_table1"), Printed("fedsdc_table2")
    for setting, methods in (("niid2", ("fedyogi", "fedprox")), ("niid1", ("fedprox", "fedavgm"))):
        cells = ", ".join(f"{NAMES[method]} {one.with_spread(method, setting)}" for method in methods)
        yield Sum("SDC-3", f"{setting}: {cells}")
    third, momentum = two.with_spread("fedsdc_m3", "niid1"), one.with_spread("fedavgm", "niid1")
    yield Sum("SDC-4", f"M3 {third}, FedAvgM {momentum}")
    for setting in ("niid1", "niid2"):
        best = one.best(FEDSDC_BASELINES, setting)
        start = f"{setting}, over {NAMES[best]}: "
        yield minus("SDC-5", start, one.value("fedsdc", setting), one.value(best, setting))
    yield Sum("SDC-8", "IID: 0.8 x 17,092 = 13,673.6; printed 11,630", (Decimal("0.8") * 17092,))
    yield Sum("SDC-8", "NIID-1: 10,015 - 7 x 30 = 9,805", (Decimal(10015 - 7 * 30),))
    low, high = Decimal(15 * 5 * 20), Decimal(15 * 6 * 60)
    text = f"NIID-2: 15 x 5 x 20 = {low:,} to 15 x 6 x 60 = {high:,}; printed 3,115"
    yield Sum("SDC-8", text, (low, high))


# FedDiverse ------------------------------------------------------------------------------------------------------


def feddiverse_selection() -> Iterator[Sum]:
    """Table 3: FedDiverse minus uniform for every optimizer and data set."""
    table = Printed("feddiverse_table3")
    for method in DIV_OPTIMIZERS:
        for setting in DIV_SETTINGS:
            own, other = (table.value(method, setting, selection) for selection in ("feddiverse", "uniform"))
            yield minus("" if own > other else "DIV-1", f"{NAMES[method]}, {setting}: ", own, other)


def feddiverse_ablation() -> Iterator[Sum]:
    """Tables 4 and 8: what known triplets, a sent matrix and more pre-training change."""
    four, eight = Printed("feddiverse_table4"), Printed("feddiverse_table8")

    def cell(method: str, rounds: int, way: str) -> Decimal:
        return four.value(method, f"waterbirds_dist/t0={rounds}/{way}", "feddiverse")

    for way, what in (("known/dht", "known triplets"), ("known/matrix", "known matrix sent")):
        for method in ("fedavg", "fedavgm"):
            both = {t: (cell(method, t, way), cell(method, t, "predicted/dht")) for t in (1, 20)}
            best = max(both, key=lambda t: both[t][0] - both[t][1])
            yield minus("DIV-2", f"{what}, {NAMES[method]}, T0 = {best}: ", *both[best])
    for method in ("fedavgm", "fedavg"):
        ways = ("predicted/dht", "known/dht", "known/matrix")
        steps = [cell(method, 20, way) - cell(method, 1, way) for way in ways]
        signed = ", ".join(number(step, sign=True) for step in steps)
        yield Sum("DIV-3", f"table 4, {NAMES[method]}, T0 20 - T0 1: {signed}", tuple(steps))
    rounds = (1, 5, 10, 15, 20, 30)
    curve = {t: eight.value("fedavgm", f"waterbirds_dist/t0={t}", "feddiverse") for t in rounds}
    below = [t for t in curve if curve[t] < curve[1]]
    text = f"table 8, FedAvgM: {', '.join(f'T0 {t}: {value}' for t, value in curve.items())}"
    yield Sum("DIV-3", f"{text}; below T0 1: {', '.join(map(str, below))}", tuple(map(Decimal, below)))
    place = ("waterbirds_dist/t0=5", "feddiverse", "dht_error")
    errors = " and ".join(eight.with_spread(method, *place) for method in ("fedavg", "fedavgm"))
    yield Sum("DIV-7", f"T0 = 5: {errors}")


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
    matrices = [line["matrix"].replace(";", " ").split() for line in lines if line["setting"] == "spawrious4"]
    sizes = sorted({sum(map(int, matrix)) for matrix in matrices})
    text = f"images of a spawrious4 client: {', '.join(map(str, sizes))}"
    yield Sum("DIV-12", text, tuple(map(Decimal, sizes)))


def feddiverse_others() -> Iterator[Sum]:
    """Tables 1 and 5: who is ahead of whom."""
    one, five = Printed("feddiverse_table1"), Printed("feddiverse_table5")
    metrics = ("class_imbalance", "attribute_imbalance", "spurious_correlation")
    ci, ai, sc = (five.value("", "spawrious_gai", metric=metric) for metric in metrics)
    yield Sum("DIV-13", f"spawrious_gai: CI {ci}, AI {ai}, SC {sc}", (ci, ai, sc))
    for setting in (*DIV_SETTINGS, "spawrious_gci100"):
        best = one.best(DIV_SELECTIONS, setting)
        own, other = one.value("feddiverse", setting), one.value(best, setting)
        yield minus("DIV-14" if own < other else "", f"{setting}, over {NAMES[best]}: ", own, other)
    for setting in DIV_SETTINGS:
        central = five.value("centralized_sgd", setting)
        yield minus("DIV-17", f"{setting}: ", one.value("feddiverse", setting), central)


CHECKS: Mapping[str, tuple[Callable[[], Iterable[Sum]], ...]] = {
    "fedld": (fedld,),
    "fedsdc": (fedsdc, differences),
    "feddiverse": (feddiverse_selection, feddiverse_ablation, feddiverse_clients, feddiverse_others),
    "fedmr": (fedmr_averages, fedmr_differences, fedmr_scale, fedmr_costs),
}

COUNTED = {
    feddiverse_selection: "gains of FedDiverse over uniform in table 3 (claimed to be all positive)",
    fedmr_averages: "averages of table 1",
    fedmr_differences: "improvements and Deltas of table 1",
}
"""The checks that compare every number of their kind, so that it makes sense to count those that agree."""


@cache
def pieces(check: Callable[[], Iterable[Sum]]) -> tuple[Sum, ...]:
    """All arithmetic of one check."""
    return tuple(check())


def arithmetic(name: str) -> list[Sum]:
    """The arithmetic that belongs to the inconsistency ``name``."""
    return [
        piece for checks in CHECKS.values() for check in checks for piece in pieces(check) if piece.id == name
    ]


def agreeing(paper: str) -> list[str]:
    """How many of the printed numbers of a kind agree, in words."""
    found = []
    for check in CHECKS[paper]:
        if check in COUNTED:
            right = sum(not piece.id for piece in pieces(check))
            found.append(f"{right} of {len(pieces(check))} {COUNTED[check]}")
    return found

"""Runs of a grid search over FedProx whose results are made up."""

from collections.abc import Mapping
from pathlib import Path

from finished_runs import finish
from tiny_runs import FAKE

from benchmark.config.compose import compose, resolve
from benchmark.config.schema import RunConfig
from benchmark.engine.records import Record
from benchmark.runs.folder import ResultsFolder

GRID = (0.001, 0.01, 0.1, 1.0)
"""As in conf/tune/fedprox.yaml."""
COLUMNS = {"iid": {"name": "iid", "clients": 4}, "dir": {"name": "dirichlet", "clients": 3, "min_size": 2}}
Values = Mapping[str, Mapping[int, float]]


def config_of(column: str, mu: float | None, seed: int = 0, split: float = 0.1) -> RunConfig:
    """The run of row ``prox``, put together by hand; ``mu`` None for the method's own value."""
    method = {"name": "fedprox"} | ({} if mu is None else {"client": {"fedprox": {"mu": mu}}})
    evaluation = {"every": 1, "validation": split}
    layer = {"dataset": FAKE, "partition": COLUMNS[column], "method": method, "evaluation": evaluation}
    return resolve(compose("quick", layer, {"train": {"rounds": 2, "batch_size": 8}, "seed": seed}))


def pretend(config: RunConfig, values: Values, state: str = "done", metric: str = "accuracy") -> None:
    """Lay down the folder of an ended run with these values: split -> round -> value."""
    records = [
        # The values of class 0 have another order than those of the whole.
        Record(t, split, group, metric, value if group == "all" else 1 - value)
        for split, rounds in values.items()
        for t, value in rounds.items()
        for group in ("all", "class=0")
    ]
    final = {split: {metric: rounds[max(rounds)]} for split, rounds in values.items()}
    made = {"commit": "0123456789abcdef", "dirty": config.seed % 2 == 1}
    results = ResultsFolder(Path("results")).open()
    finish(results, config, records, state=state, final=final if state == "done" else {}, made=made)


def pretend_grid(column: str, validation: tuple[float, ...], test: tuple[float, ...] = (1, 0, 0, 0)) -> None:
    for mu, held, tested in zip(GRID, validation, test, strict=True):
        pretend(config_of(column, mu), {"validation": {1: 0.5, 2: held}, "test": {1: 0.5, 2: tested}})

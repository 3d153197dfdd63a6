"""From a table to its runs: each once, each cell accounted for, every mistake before the first run."""

import itertools
from typing import Any

import pytest
from tiny_runs import FAKE

from benchmark.config.compose import compose, resolve
from benchmark.config.schema import RunConfig
from benchmark.errors import ConfigError
from benchmark.experiments.plan import PlannedCell, TunedValues, check, plan, unique_runs
from benchmark.experiments.spec import TableSpec
from benchmark.experiments.tables import find_specs

MU = "method.client.fedprox.mu"

TABLE: dict[str, Any] = {
    "paper": "toy",
    "title": "Toy",
    "metric": "accuracy",
    "seeds": {"quick": 2, "paper": 5},
    "presets": ["quick", "paper"],
    "overrides": [
        {"preset": "quick", "dataset": FAKE, "train": {"rounds": 3, "batch_size": 8}},
        {"row": "fedprox", "method": {"client": {"fedprox": {"mu": 0.5}}}},
    ],
    "rows": [
        {"key": "fedavg", "label": "FedAvg", "method": "fedavg"},
        {"key": "fedprox", "label": "FedProx", "method": "fedprox"},
    ],
    "columns": [
        {"key": "iid", "label": "IID", "partition": {"name": "iid", "clients": 6}},
        {
            "key": "skewed",
            "label": "Skewed",
            "partition": {"name": "dirichlet", "clients": 4, "min_size": 2},
            "presets": ["quick"],
        },
        {"key": "avg", "label": "Average", "average_of": ["iid", "skewed"]},
    ],
}


def toy(**changes: Any) -> TableSpec:
    return TableSpec.model_validate({"name": "toy", **TABLE, **changes})


@pytest.fixture
def spec() -> TableSpec:
    return toy()


def test_every_cell_has_runs_or_a_reason(spec: TableSpec) -> None:
    cells = plan(spec, "quick")
    assert {key: cell.state for key, cell in cells.items()} == {
        **{(row, column): "ok" for row in ("fedavg", "fedprox") for column in ("iid", "skewed")},
    }
    for cell in cells.values():
        assert [run.seed for run in cell.runs] == ([0, 1] if cell.state == "ok" else [])
    cells = plan(spec, "paper")
    assert [run.seed for run in cells["fedavg", "iid"].runs] == [0, 1, 2, 3, 4]
    assert cells["fedavg", "skewed"] == PlannedCell("fedavg", "skewed", "not in this preset")
    with pytest.raises(ConfigError, match="small"):
        plan(spec, "small")


def by_hand(mu: float, seed: int, **train: float) -> RunConfig:
    """A run of row fedprox and column iid."""
    layer = {"partition": {"name": "iid", "clients": 6}, "train": {"rounds": 3, "batch_size": 8, **train}}
    method = {"name": "fedprox", "client": {"fedprox": {"mu": mu}}}
    return resolve(compose("quick", layer, {"dataset": FAKE, "method": method, "seed": seed}))


def test_runs_are_what_the_table_says_and_tuned_values_are_the_last_word(spec: TableSpec) -> None:
    """Tuned values change their own cell and no other."""
    chosen = {("fedprox", "iid"): TunedValues({MU: 0.25, "train.lr": 0.125}, "file")}
    plain, cells = plan(spec, "quick"), plan(spec, "quick", chosen=chosen)
    assert plain["fedprox", "iid"].runs[0].method["client"] == {
        "fedprox": {"mu": 0.5, "prox_norm": "squared"}
    }
    assert tuple(plain["fedprox", "iid"].runs) == (by_hand(0.5, 0), by_hand(0.5, 1))
    tuned = by_hand(0.25, 0, lr=0.125), by_hand(0.25, 1, lr=0.125)
    assert tuple(cells["fedprox", "iid"].runs) == tuned
    assert [run.key for run in cells["fedprox", "iid"].runs] == [run.key for run in tuned]
    assert tuned[0].hash != by_hand(0.5, 0).hash
    assert cells.pop(("fedprox", "iid")).chosen == chosen["fedprox", "iid"]
    assert cells.items() <= plain.items()


def test_seeds_and_what_is_no_part_of_the_runs(spec: TableSpec) -> None:
    def seeds(*given: Any) -> list[int]:
        return [run.seed for run in plan(spec, "quick", *given)["fedavg", "iid"].runs]

    assert (seeds(), seeds(range(3)), seeds([7])) == ([0, 1], [0, 1, 2], [7])
    extra = {"paths": {"results": "there"}, "runtime": {"threads": 3, "device": "cpu"}}
    one, two = plan(spec, "quick"), plan(spec, "quick", None, extra)
    assert list(unique_runs([one])) == list(unique_runs([two]))
    assert {(run.paths.results, run.runtime.threads) for run in unique_runs([two]).values()} == {("there", 3)}


def test_options_of_the_data_sets(spec: TableSpec) -> None:
    """They belong to the run. `FAKE` has 4 classes and the default of one channel, which is no change."""
    given = {"dataset": {"options": {"classes": 3, "channels": 1}}}
    before, after = plan(spec, "quick"), plan(spec, "quick", None, given)
    cell = after["fedavg", "iid"]
    assert cell.options == {"classes": (4, 3)}
    assert cell.runs[0].dataset.options == {**FAKE["options"], "classes": 3}
    assert not unique_runs([before]).keys() & unique_runs([after]).keys()
    same = plan(spec, "quick", None, {"dataset": {"options": {"channels": 1}}})
    assert same == before


def test_runs_that_tables_share_are_done_once(spec: TableSpec) -> None:
    alike = toy(title="The same once more", metric="loss", seeds=3)
    runs = unique_runs([plan(spec, "quick"), plan(alike, "quick")])
    assert len(runs) == 2 * 2 * 3
    assert list(runs)[:2] == [run.key for run in plan(spec, "quick")["fedavg", "iid"].runs]


@pytest.mark.parametrize(
    ("settings", "tuned", "said"),
    [
        ({"train": {"momentun": 0.5}}, {}, r"train\.momentun: unknown key.* Did you mean 'momentum'"),
        ({"model": "tiny_mpl"}, {}, r"model: got 'tiny_mpl'.* Did you mean 'tiny_mlp'\?"),
        ({"method": {"client": {"fedprox": {"mu": -1}}}}, {}, r"method\.client\.fedprox\.mu: (came|got) -1"),
        (
            {},
            {"method.cliend.fedprox.mu": 1.0},
            r"cliend\.fedprox\.mu: unknown key.* Did you mean 'method\.client\.fedprox\.mu'\?",
        ),
        ({}, {MU: -1.0}, r"method\.client\.fedprox\.mu: (came|got) -1\.0"),
    ],
    ids=str,
)
def test_a_mistake_is_found_before_the_first_run(
    settings: dict[str, Any], tuned: dict[str, float], said: str
) -> None:
    """In the table's settings or in tuned values, whose file is named."""
    rows = [{"key": "mine", "label": "Mine", "method": "fedprox"}]
    chosen = {("mine", "iid"): TunedValues(tuned, "results/tuned/quick/toy.yaml")} if tuned else {}
    with pytest.raises(ConfigError, match=said) as error:
        mine = toy(rows=rows, overrides=[TABLE["overrides"][0], settings])
        check(mine, plan(mine, "quick", chosen=chosen))
    assert str(error.value).startswith("table toy, row mine, column iid: ")
    assert all(f"with {key} of results/tuned/quick/toy.yaml" in str(error.value) for key in tuned)


def test_every_table_of_the_repository_can_be_planned() -> None:
    specs = find_specs()
    runs: dict[str, RunConfig] = {}
    for spec, preset in itertools.product(specs, ("quick", "small", "paper")):
        if preset not in spec.presets:
            continue
        cells = plan(spec, preset, [0])
        assert len(cells) == len(spec.rows) * len(spec.run_columns)
        assert all(bool(cell.runs) == (cell.state == "ok") for cell in cells.values())
        assert preset != "quick" or {cell.state for cell in cells.values()} == {
            "not tuned" if spec.tuned_only else "ok"
        }
        if preset == "quick" and spec.table == 1:
            runs |= unique_runs([cells])
    assert len(runs) > 100

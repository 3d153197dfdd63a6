"""A run's configuration: what Hydra composes and what the planner composes is the same, and so is its identity."""

import copy
import hashlib
import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest
import yaml
from command_line import configuration
from hydra import compose as hydra_compose
from hydra import initialize_config_dir
from omegaconf import OmegaConf

import datasets
import partitions.core.registry
from benchmark.config import schema
from benchmark.config.compose import CHOICES, compose, group_names, load_group, resolve
from benchmark.config.merge import merge
from benchmark.config.schedules import learning_rate
from benchmark.config.schema import GROUPS, RunConfig
from benchmark.errors import ConfigError
from benchmark.models.networks import model_names
from benchmark.paths import CONF
from benchmark.runs.build import build_method


@pytest.fixture(scope="module")
def hydra() -> Iterator[Any]:
    """The configuration that Hydra composes. It does not know the schema's defaults, so every key is one to add."""

    def composed(words: Sequence[str]) -> RunConfig:
        keys = [
            f"++{word}" if word[0].isalpha() and word.partition("=")[0] not in CHOICES else word
            for word in words
        ]
        return resolve(OmegaConf.to_container(hydra_compose("config", overrides=keys), resolve=True))  # type: ignore[arg-type]

    with initialize_config_dir(str(CONF), version_base="1.3"):
        yield composed


def config(*layers: Mapping[str, Any], preset: str = "quick") -> RunConfig:
    return resolve(compose(preset, *layers))


OPTIMIZER = {"method": {"name": "fedavgm", "server": {"optimizer": {"name": "add"}}}}

# Words of the command line, and what a table file has instead of them.
PAIRS: list[tuple[str, list[Mapping[str, Any]]]] = [
    ("", []),
    ("method=fedprox method.client.fedprox.mu=0.5 seed=3",
     [{"method": {"name": "fedprox", "client": {"fedprox": {"mu": 0.5}}}, "seed": 3}]),
    ("method=fedavgm method.server.weights={name:uniform}",
     [{"method": {"name": "fedavgm", "server": {"weights": {"name": "uniform"}}}}]),
    ("method=fedavgm ~method.server.optimizer +method.server.optimizer={name:add}", [OPTIMIZER]),
    ("train.schedule.name=step +train.schedule.every=3 ++train.schedule.gamma=0.1",
     [{"train": {"schedule": {"name": "step", "every": 3, "gamma": 0.1}}}]),
    ("partition=white_blood_cells partition.classes_per_client=[2,3]",
     [{"partition": {"name": "white_blood_cells", "classes_per_client": [2, 3]}}]),
    ("dataset=fake +dataset.options.classes=4 +dataset.options={channels:3}",
     [{"dataset": {"name": "fake", "options": {"classes": 4, "channels": 3}}}]),
    ("'paths.data=a b' train.lr=1e-3 train.lr=0.2", [{"paths": {"data": "a b"}, "train": {"lr": 0.2}}]),
    ("preset=small dataset=digits_cmnist dataset.train_per_class=50 partition=interaction partition.scale=0.25 "
     "method=fedavgm+fedprox method.server.optimizer.beta=0.9 selection=round_robin train.clients_per_round=9 "
     "evaluation.validation=0.1 precision.amp=true",
     [
         {"dataset": {"name": "digits_cmnist", "train_per_class": 50}},
         {"partition": {"name": "interaction", "scale": 0.25}, "selection": "round_robin"},
         {"method": {"name": "fedavgm+fedprox", "server": {"optimizer": {"beta": 0.9}}}},
         {"train": {"clients_per_round": 9}, "evaluation": {"validation": 0.1}, "precision": {"amp": True}},
     ]),
]  # fmt: skip


@pytest.mark.parametrize(("text", "layers"), PAIRS, ids=[text for text, _ in PAIRS])
def test_hydra_the_planner_and_the_command_line_agree(
    hydra: Any, text: str, layers: list[Mapping[str, Any]]
) -> None:
    words = shlex.split(text)
    planned = config(*layers, preset="small" if "preset=small" in words else "quick")
    ours = configuration(words)
    assert hydra(words) == planned == ours
    assert hydra(words).hash == planned.hash == ours.hash


def test_a_method_is_what_its_parts_are() -> None:
    """FedAvgM with the plain server step is FedAvg: the same run, whatever the file and the method are called."""
    assert config(OPTIMIZER).hash == config().hash
    plain = compose("quick")
    plain["method"]["name"] = "mean"
    assert resolve(plain).hash == config().hash
    assert resolve(plain).label == "digits-dirichlet-mean-uniform"


@pytest.mark.parametrize(
    "layer",
    [
        {"seed": 7},
        {"paths": {"results": "elsewhere", "data": "/data", "cache": "/tmp"}},
        {"runtime": {"device": "cpu", "threads": 8, "checkpoint_every": 1, "keep_checkpoint": True}},
        {"preset": "a label"},
        {"method": {"label": "FedAvg (ours)"}},
    ],
    ids=lambda layer: next(iter(layer)),
)
def test_what_is_no_part_of_the_identity(layer: dict[str, Any]) -> None:
    assert config(layer).hash == config().hash
    assert config(layer) != config()


DIFFERENT = """
train.lr=0.06 train.rounds=13 train.momentum=0.0 train.clients_per_round=2 train.schedule={name:cosine,final:0.1}
train.buffers=local train.augment=crop_flip evaluation.every=1 evaluation.validation=0.1 precision.amp=true
precision.tf32=true precision.channels_last=false dataset.train_per_class=20 dataset.rest=test partition.alpha=0.4
partition.seed=0 model.hidden=33 method=fedprox method=fedavgm method.server.weights.name=uniform selection=round_robin
"""


def test_asking_for_a_metric() -> None:
    """One that is always recorded moves no hash; the order of others does not count."""
    asked = [
        config({"evaluation": {"metrics": names}}).hash
        for names in (
            ["auroc", "micro_f1"],
            ["kappa", "auroc"],
            ["kappa"],
            ["kappa", "brier"],
            ["brier", "kappa"],
        )
    ]
    assert asked[0] == config().hash != asked[1]
    assert asked[1] == asked[2] != asked[3] == asked[4]


def test_what_is_a_part_of_the_identity() -> None:
    noise = config({"dataset": {"options": {"noise": 0.5}}})
    runs = [config(), noise, *(configuration([word]) for word in DIFFERENT.split())]
    assert len({run.hash for run in runs}) == len(runs) == 23
    assert all(len(run.hash) == 12 and int(run.hash, 16) >= 0 for run in runs)


def test_a_new_key_at_its_default_moves_no_hash(monkeypatch: pytest.MonkeyPatch) -> None:
    """The hash of what a configuration was before the key: all the others."""
    older = copy.deepcopy(config().identity)
    del older["train"]["loss"]
    expected = hashlib.sha256(json.dumps(older, sort_keys=True).encode()).hexdigest()[:12]
    assert config().hash != expected
    keys = schema.HASHED_UNLESS_DEFAULT
    monkeypatch.setattr(schema, "HASHED_UNLESS_DEFAULT", (*keys, ("train", "loss")))
    assert config().hash == expected
    assert config({"train": {"loss": {"gamma": 2.0}}}).hash != expected


def test_numbers_are_the_same_however_they_are_written() -> None:
    assert config({"train": {"lr": 1}}).hash == config({"train": {"lr": 1.0}}).hash
    assert config({"train": {"lr": 1e-3}}).hash == config({"train": {"lr": 0.001}}).hash


def test_a_configuration_and_its_folder_survive_yaml_and_json() -> None:
    files = {"method": "fedavgm+fedprox", "dataset": "digits_cmnist", "partition": "interaction"}
    first = config(files, {"seed": 3})
    again = RunConfig.model_validate(yaml.safe_load(yaml.safe_dump(first.model_dump(mode="json"))))
    assert (again, again.hash) == (first, first.hash)
    assert again.key == f"standin_cmnist-interaction-fedavgm+fedprox-uniform-{again.hash}/seed3"
    assert not set(again.key) & set(' \\:*?"<>|')


def test_auto_is_uniform_or_the_methods_own() -> None:
    assert config().selection == {"name": "uniform"}
    own = {"method": {"selection": {"name": "round_robin"}}}
    assert config(own).selection == {"name": "round_robin"}
    assert config(own, {"selection": "uniform"}).selection == {"name": "uniform"}
    # The method's own selection counts once, as the run's: where it is overruled nothing is left of it.
    assert config(own, {"selection": "uniform"}).hash == config({"selection": "uniform"}).hash
    assert config(own).hash == config({"selection": "round_robin"}).hash


FILES = [(group, name) for group in GROUPS for name in group_names(group)]


@pytest.mark.parametrize(("group", "name"), FILES, ids=[f"{group}/{name}" for group, name in FILES])
def test_every_file_of_every_group(hydra: Any, group: str, name: str) -> None:
    ours = config({group: name})
    assert ours.hash == hydra([f"{group}={name}"]).hash
    # FedSDC+ wants a validation split; the others do not mind one.
    method = build_method(config({group: name, "evaluation": {"validation": 0.1}}))
    assert method.selection is not None
    assert ours.model.name in model_names()
    entry = datasets.core.registry.get(ours.dataset.name)
    assert datasets.core.registry.parse(entry, ours.dataset.options) is not None
    assert partitions.core.registry.make(ours.partition.name, ours.partition.parameters)


@pytest.mark.parametrize("name", group_names("preset"))
def test_every_preset(hydra: Any, name: str) -> None:
    assert config(preset=name) == hydra([f"preset={name}"])
    assert config(preset=name).preset == name


def test_what_is_loaded_is_a_copy() -> None:
    load_group("method", "fedavg")["server"]["weights"]["name"] = "broken"
    compose("quick")["train"]["lr"] = "broken"
    assert load_group("method", "fedavg")["server"]["weights"]["name"] == "size"
    assert config().train.lr == 0.05


def test_merge_replaces_what_has_another_name() -> None:
    base = {"optimizer": {"name": "momentum", "beta": 0.5}, "list": [1, 2], "deep": {"a": {"b": 1, "c": 2}}}
    before = copy.deepcopy(base)
    over = {"optimizer": {"name": "adam"}, "list": [3], "deep": {"a": {"b": 5}}, "new": {"x": 1}}
    merged = {"optimizer": {"name": "adam"}, "list": [3], "deep": {"a": {"b": 5, "c": 2}}, "new": {"x": 1}}
    assert merge(base, over) == merged
    assert base == before
    assert merge({"o": {"name": "m", "beta": 0.5}}, {"o": {"beta": 0.9}}) == {"o": {"name": "m", "beta": 0.9}}
    assert merge({"a": {"b": 1}}, {"a": None}) == {"a": None}


def test_a_choice_of_files_that_is_no_name() -> None:
    with pytest.raises(ConfigError, match=r"method, selection: got None"):
        config({"method": None})


def test_all_mistakes_come_at_once() -> None:
    with pytest.raises(ConfigError) as error:
        config({"train": {"lr": 0, "rounds": 0, "momentun": 0.5}, "seed": -1})
    message = str(error.value)
    assert all(key in message for key in ("train.lr", "train.rounds", "train.momentun", "seed"))
    assert message.endswith("Set it on the command line or in conf/.")


@pytest.mark.parametrize(
    ("schedule", "rates"),
    [
        ({}, [0.8, 0.8, 0.8, 0.8, 0.8]),
        ({"name": "step", "every": 2, "gamma": 0.5}, [0.8, 0.8, 0.4, 0.4, 0.2]),
        ({"name": "exponential", "gamma": 0.5}, [0.8, 0.4, 0.2, 0.1, 0.05]),
        ({"name": "cosine"}, [0.8, 0.4 + 0.2 * 2**0.5, 0.4, 0.4 - 0.2 * 2**0.5, 0.0]),
        ({"name": "cosine", "final": 0.5}, [0.8, 0.6 + 0.1 * 2**0.5, 0.6, 0.6 - 0.1 * 2**0.5, 0.4]),
    ],
)
def test_learning_rates_over_rounds(schedule: dict[str, Any], rates: list[float]) -> None:
    rate = learning_rate(0.8, 4, schedule)
    assert [rate(t) for t in range(5)] == pytest.approx(rates, abs=1e-15)

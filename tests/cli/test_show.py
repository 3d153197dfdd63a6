"""`show`: the layers of settings of a cell, and the configuration that they come to."""

from typing import Any

import yaml

from benchmark.config.compose import compose, resolve
from benchmark.config.merge import flat

CELL = ("show", "name=fedmr_table1", "row=fedmr", "column=fmnist/p10c2", "preset=small", "tuned=off")


def test_the_layers_come_to_the_configuration(cli: Any) -> None:
    """Laid on top of each other by hand, in the order in which they are printed."""
    code, out, err = cli(*CELL, "results=elsewhere", "dataset.options.strict=false")
    assert (code, err) == (0, "")
    head, *parts = out.split("\n\n# ")
    layers = {name: yaml.safe_load(text) for name, _, text in (part.partition("\n") for part in parts)}
    *names, shown = layers
    assert names[0] == "conf/preset/small.yaml" and names[-3:] == [
        "column fmnist/p10c2",
        "row fedmr",
        "command line",
    ]
    assert all(name.startswith("override ") for name in names[1:-3])
    config = resolve(compose("small", *(layers[name] for name in names[1:])))
    assert f"{config.name}/seed0" in head
    plain = dict(flat(config.model_dump(mode="json")))
    assert layers[shown]["partition.name"] == "pcdd" and layers[shown]["train.clip"] is None
    assert {key: plain[key] for key in layers[shown]} == layers[shown]

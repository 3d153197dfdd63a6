"""`show`: the configuration of a cell, and what set each of its values."""

import re
from pathlib import Path
from typing import Any

import yaml

from benchmark.config.merge import explain, merge

CELL = ("show", "name=fedmr_table1", "row=fedmr", "column=fmnist/p10c2", "preset=small", "tuned=off")


def sources(text: str) -> dict[str, tuple[str, str]]:
    """Last part of each key -> (value, source)."""
    lines = re.findall(r"^ *(\w+): (.*?)  # (.*)$", text, re.MULTILINE)
    return {key: (value, source) for key, value, source in lines}


def test_every_value_names_the_file_and_line_that_set_it(cli: Any, root: Path) -> None:
    """Each line that is named sets this key to this value."""
    code, out, err = cli(*CELL, "results=elsewhere", "dataset.options.strict=false")
    assert (code, err) == (0, "")
    table, *_ = yaml.safe_load_all(out)
    assert table["method"]["name"] == "fedmr" and table["partition"]["name"] == "pcdd"
    named = sources(out)
    assert named["strict"] == ("false", "command line") and named["clip"] == ("null", "default")
    files = {source for _, source in named.values() if ":" in source}
    assert {source.partition("/")[2].partition("/")[0] for source in files} >= {"method", "table", "preset"}
    for key, (value, source) in named.items():
        if ":" in source:
            path, _, line = source.rpartition(":")
            text = (root / path).read_text().splitlines()[int(line) - 1]
            assert key in text and (
                value in text or float(value) in map(float, re.findall(r"[\d.]+e?-?\d*", text))
            )


def test_a_part_that_another_name_replaces_leaves_no_source() -> None:
    """By hand: of ``alpha`` nothing is left, and ``clients`` is the later layer's."""
    first = merge({}, {"partition": {"name": "a", "alpha": 1, "clients": 5}}, "first")
    both = merge(first, {"partition": {"name": "b", "clients": 7}}, "second")
    assert list(explain(both)) == [("partition.name", "b", "second"), ("partition.clients", 7, "second")]
    assert list(explain(merge(both, {"partition": {"clients": 8}}, "third")))[1] == (
        "partition.clients",
        8,
        "third",
    )

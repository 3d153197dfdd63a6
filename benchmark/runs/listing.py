"""The runs of a results folder, whatever made them: found by any key of their configuration."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

import yaml

from benchmark.config.schema import GROUPS, RunConfig
from benchmark.errors import ConfigError, nearest
from benchmark.runs.index import RunIndex
from benchmark.runs.result_files import DamagedError
from benchmark.runs.status import Result, RunState

STATE = "state"
NAMES = {"format", *(f"{group}.name" for group in GROUPS)}
"""Keys that say nothing beside the name of their group."""


@dataclass(frozen=True)
class ListedRun:
    """A run that has a folder. ``result`` is None before it is finished."""

    key: str
    config: RunConfig
    state: RunState
    result: Result | None

    @property
    def settings(self) -> dict[str, Any]:
        """Dotted key -> value of all that decides the run; a group (``method``) goes by its name."""
        plain = self.config.identity | {"seed": self.config.seed, "preset": self.config.preset}
        names = {group: getattr(self.config, group) for group in GROUPS}
        names = {
            group: node["name"] if isinstance(node, dict) else node.name for group, node in names.items()
        }
        return names | {key: value for key, value in _flat(plain) if key not in NAMES}

    def fits(self, where: Mapping[str, str]) -> bool:
        """Whether the value of each key is one of the values or patterns, ``a,b*``, that ``where`` names."""
        settings = self.settings | {STATE: str(self.state)}
        return all(
            key in settings and any(fnmatchcase(as_text(settings[key]), one) for one in wanted.split(","))
            for key, wanted in where.items()
        )


def _flat(node: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in node.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def as_text(value: Any) -> str:
    """A value as it is written on the command line."""
    return yaml.safe_dump([value], default_flow_style=True, width=10**9).strip()[1:-1]


def listed(index: RunIndex, keys: Iterable[str]) -> list[ListedRun]:
    """These runs. One whose configuration cannot be read is left out; it is among the problems of ``index``."""
    runs = []
    for key in keys:
        try:
            config = index.results.run(key).read_config()
        except DamagedError as error:
            index.problems[key] = str(error)
            continue
        runs.append(ListedRun(key, config, index.state(key), index.result(key)))
    return runs


def find_runs(index: RunIndex, where: Mapping[str, str]) -> list[ListedRun]:
    """The runs of a results folder that fit ``where``. `ConfigError` for a key that no run has."""
    runs = listed(index, index.results.run_keys())
    keys = {STATE: None} | {key: None for run in runs for key in run.settings}
    for key in where:
        if runs and key not in keys:
            expected = "state, or a key of a run's configuration"
            raise ConfigError(f"runs: unknown key {key!r}; expected {expected}.{nearest(key, keys)}")
    return [run for run in runs if run.fits(where)]


def differing(runs: Sequence[ListedRun]) -> list[str]:
    """The keys whose values are not the same in all runs."""
    settings = [run.settings for run in runs]
    keys = dict.fromkeys(key for values in settings for key in values)
    return [key for key in keys if len({as_text(values.get(key)) for values in settings}) > 1]

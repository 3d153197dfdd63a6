"""The runs of a results folder, whatever made them: found by any key of their configuration."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from benchmark.config.merge import flat
from benchmark.config.schema import GROUPS, RunConfig
from benchmark.engine.records import Record
from benchmark.errors import ConfigError, nearest, wrong
from benchmark.runs.folder import RunFolder
from benchmark.runs.index import RunIndex
from benchmark.runs.result_files import DamagedError, read_records
from benchmark.runs.status import Result, RunState

if TYPE_CHECKING:
    import pandas as pd

STATE = "state"
FIRST = (*GROUPS, "preset", "seed")
MOST = 8
"""Settings in the line of a run."""
LONGEST = 24
"""Characters of a value in it."""
NAMES = {"format", *(f"{group}.name" for group in GROUPS)}
"""Keys that say nothing beside the name of their group."""


@dataclass(frozen=True)
class Run:
    """A run of a results folder.

    Attributes:
        key: Its folder below ``runs`` in the results folder.
        config: Its configuration.
        state: What became of it: done, diverged, failed, ...
        result: None before it is finished.
        files: Its files.
    """

    key: str
    config: RunConfig = field(repr=False)
    state: RunState
    result: Result | None = field(repr=False)
    files: RunFolder = field(repr=False)

    @property
    def folder(self) -> Path:
        """Its folder."""
        return self.files.path

    @property
    def message(self) -> str:
        """Why it diverged or failed; empty otherwise."""
        if self.result is not None:
            return self.result.message
        failure = self.files.last_failure()
        return failure[0] if failure else ""

    @property
    def final(self) -> dict[str, dict[str, float]]:
        """Its last evaluation, {split: {metric: value}}. Accuracies are fractions."""
        return self.result.final if self.result else {}

    def records(self) -> pd.DataFrame:
        """All that it recorded: round, split, group, metric, value. `UserError` unless it has ended."""
        import pandas as pd

        if self.result is None:
            raise ConfigError(f"{self.folder}: the run is not finished.")
        return pd.DataFrame(read_records(self.folder, self.result), columns=Record._fields)

    @property
    def settings(self) -> dict[str, Any]:
        """Dotted key -> value of all that decides the run; a group (``method``) goes by its name."""
        plain = self.config.identity | {"seed": self.config.seed, "preset": self.config.preset}
        names = {group: getattr(self.config, group) for group in GROUPS}
        names = {
            group: node["name"] if isinstance(node, dict) else node.name for group, node in names.items()
        }
        return names | {key: value for key, value in flat(plain) if key not in NAMES and value != {}}

    def fits(self, where: Mapping[str, str]) -> bool:
        """Whether the value of each key is one of the values or patterns, ``a,b*``, that ``where`` names."""
        settings = self.settings | {STATE: str(self.state)}
        return all(
            key in settings and any(fnmatchcase(as_text(settings[key]), one) for one in wanted.split(","))
            for key, wanted in where.items()
        )


def as_text(value: Any) -> str:
    """A value as it is written on the command line."""
    return yaml.safe_dump([value], default_flow_style=True, width=10**9).strip()[1:-1]


def listed(index: RunIndex, keys: Iterable[str]) -> list[Run]:
    """These runs. One whose configuration cannot be read is left out; it is among the problems of ``index``."""
    runs = []
    for key in keys:
        files = index.folder(key)
        try:
            config = files.read_config()
        except DamagedError as error:
            index.problems[key] = str(error)
            continue
        runs.append(Run(key, config, index.state(key), index.result(key), files))
    return runs


def find_runs(index: RunIndex, where: Mapping[str, str]) -> list[Run]:
    """The runs of a results folder that fit ``where``. `ConfigError` for a key that no run has."""
    runs = listed(index, index.keys())
    keys = {STATE: None} | {key: None for run in runs for key in run.settings}
    for key in where:
        if runs and key not in keys:
            expected = "state, or a key of a run's configuration"
            raise ConfigError(f"runs: unknown key {key!r}; expected {expected}.{nearest(key, keys)}")
    for wanted in where.get(STATE, "*").split(","):
        if not any(fnmatchcase(state, wanted) for state in RunState):
            raise ConfigError(wrong(STATE, wanted, f"one of {', '.join(RunState)}", known=RunState))
    return [run for run in runs if run.fits(where)]


def differing(runs: Sequence[Run]) -> list[str]:
    """The keys whose values are not the same in all runs."""
    return list(_differing([run.settings for run in runs]))


def telling(runs: Sequence[Run]) -> list[str]:
    """At most `MOST` of these keys, without lists and long texts: groups, preset, seed, then what most runs have."""
    settings = [run.settings for run in runs]
    found = {
        key: sum(key not in values for values in settings)
        for key in _differing(settings)
        if not any(isinstance(v := values.get(key), list) or len(str(v)) > LONGEST for values in settings)
    }
    return sorted(found, key=lambda key: (key not in FIRST, found[key]))[:MOST]


def _differing(settings: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    for key in dict.fromkeys(key for values in settings for key in values):
        if len({repr(values.get(key)) for values in settings}) > 1:
            yield key

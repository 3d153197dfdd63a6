"""The configurations that the words of ``run`` describe, in Hydra's override grammar.

``GROUP=NAME`` chooses a file of ``conf/GROUP``, ``KEY=VALUE`` sets a key, ``+KEY=VALUE`` adds it, ``~KEY`` removes it.
``dataset.options.KEY=VALUE`` sets any option that the data set has, and ``results=FOLDER`` is ``paths.results=FOLDER``.
With ``-m`` the values ``a,b``, ``range(0,3)`` and ``glob(fed*)`` are swept, and every combination is one configuration.
Hydra parses the words. `benchmark.config.compose` composes the files, as for tables, so that both give equal runs.
"""

import itertools
import re
from collections.abc import Iterable, Sequence
from functools import reduce
from operator import getitem
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override, OverrideType
from hydra.errors import HydraException
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from benchmark.config.compose import (
    CHOICES,
    COMMAND_LINE,
    compose,
    group_names,
    resolve,
    set_value,
    with_dataset_options,
    without,
)
from benchmark.config.merge import Settings, merge, plain
from benchmark.config.schema import RunConfig
from benchmark.errors import ConfigError, UserError, wrong
from benchmark.experiments.sweeps import Sweep, SweptRun

SHORT = {
    "results": "paths.results",
    "data": "paths.data",
    "device": "runtime.device",
    "threads": "runtime.threads",
    "cuda_graphs": "runtime.cuda_graphs",
    "stale": "runtime.stale",
}
"""Options of other commands that are keys of a run's configuration."""

_KEY = re.compile(r"\$\{[^${}:]*\}")
"""The value of another key. What else begins with ``${`` is a call, which may read the environment."""


class _Files:
    """Tells Hydra's ``glob()`` which files a group has."""

    def get_group_options(self, group: str, results_filter: object = None) -> list[str]:
        """Names of the files."""
        return group_names(group)


def configuration(words: Sequence[str]) -> RunConfig:
    """The configuration of one run. Errors as `sweep`; several values of a key are one of them."""
    (run,) = _runs(_axes(words, many=False))
    return run.config


def sweep(words: Sequence[str]) -> Sweep:
    """The configurations of all combinations, in the order of the words; the last word changes fastest.

    The last word of a key counts. `ConfigError` for an unknown key or name (with the nearest), or a value that is not
    allowed.
    """
    return Sweep(_runs(_axes(words, many=True)))


def _runs(axes: Sequence[Sequence[Override]]) -> list[SweptRun]:
    runs = []
    for overrides in itertools.product(*axes):
        swept = [override for override, axis in zip(overrides, axes, strict=True) if len(axis) > 1]
        values = {
            override.get_key_element(): str(override.input_line).partition("=")[2].strip("'\"")
            for override in swept
        }
        try:
            plain = _composed(overrides)
            runs.append(SweptRun(values, resolve(plain), plain))
        except UserError as error:
            words = " ".join(str(override.input_line) for override in swept)
            raise ConfigError(f"{words}: {error}" if words else str(error)) from error
    return runs


def plain_configuration(words: Sequence[str]) -> Settings:
    """The configuration of one run before it is validated."""
    return _composed([override for axis in _axes(words, many=False) for override in axis])


def _axes(words: Sequence[str], many: bool) -> list[list[Override]]:
    """One list for each key: an override for each of its values."""
    parts = [word.partition("=") for word in words]
    whole = [f"{SHORT.get(key, key)}{equals}{value}" for key, equals, value in parts]
    last = {override.get_key_element(): override for override in _parse(whole)}
    return [_values(override, many) for override in last.values()]


def _parse(words: Iterable[str]) -> list[Override]:
    parser = OverridesParser.create(_Files())  # type: ignore[arg-type]
    overrides = []
    for word in words:
        try:
            overrides += parser.parse_overrides([word])
        except HydraException as error:
            expected = "KEY=VALUE; a value with special characters is written in quotes, KEY=\"'VALUE'\""
            raise ConfigError(wrong("run", word, expected)) from error
    for override in overrides:
        if override.package is not None:
            expected = f"{override.key_or_group}=VALUE, without a package"
            raise ConfigError(wrong("run", override.input_line, expected))
        if "${" in _KEY.sub("", str(override.input_line)):
            expected = "no call such as ${oc.env:NAME}, only keys such as ${train.lr}"
            raise ConfigError(wrong("run", override.input_line, expected))
    return overrides


def _values(override: Override, many: bool) -> list[Override]:
    """An override for each value of a sweep, or the override itself."""
    key, word = override.get_key_element(), override.input_line
    if not override.is_sweep_override():
        return [override]
    if not override.is_discrete_sweep():
        raise ConfigError(wrong(key, word, "a list of values: a,b,c or range(0,3)"))
    texts = list(override.sweep_string_iterator())
    if not many:
        values = ",".join(texts)
        raise ConfigError(
            wrong(key, values, f"one value; with -m there is one run for each. A list is written [{values}]")
        )
    if not texts:
        raise ConfigError(wrong(key, word, "a pattern that fits a name", known=group_names(key)))
    return _parse(f"{key}={text}" for text in texts)


def _composed(overrides: Sequence[Override]) -> Settings:
    """The plain configuration of conf/ with overrides: choices of files first, then the others in their order."""
    files, changes = {}, []
    for override in overrides:
        if override.key_or_group in CHOICES and override.type is OverrideType.CHANGE:
            files[override.key_or_group] = str(override.value())
        else:
            changes.append(override)
    config = compose(files.pop("preset", "quick"), files, source=COMMAND_LINE)
    options: dict[str, Any] = {}
    for override in changes:
        if option := _option(override):
            options[option] = override.value()
        else:
            config = _changed(config, override)
    referring = [override for override in changes if "${" in str(override.input_line)]
    if referring:
        values = _resolved(merge(config, {"dataset": {"options": options}}))
        for override in referring:
            value = reduce(getitem, override.key_or_group.split("."), values)
            if option := _option(override):
                options[option] = value
            else:
                config = set_value(config, override.key_or_group, value, COMMAND_LINE)
    return with_dataset_options(config, options)[0] if options else config


def _option(override: Override) -> str:
    """The option of the data set that an override sets, which need not be in its file; empty if it sets none."""
    path, _, option = override.key_or_group.rpartition(".")
    return option if path == "dataset.options" and override.type is not OverrideType.DEL else ""


def _resolved(config: Settings) -> Any:
    """A configuration in which ``${KEY}`` has become the value of this key."""
    try:
        return OmegaConf.to_container(OmegaConf.create(plain(config)), resolve=True)
    except OmegaConfBaseException as error:
        raise ConfigError(f"run: {str(error).splitlines()[0]}.") from error


def _changed(config: Settings, override: Override) -> Settings:
    """The configuration with one key set, added or removed."""
    key = override.key_or_group
    if override.type is OverrideType.DEL:
        return without(config, key)
    adds = override.type in (OverrideType.ADD, OverrideType.FORCE_ADD)
    return set_value(config, key, override.value(), COMMAND_LINE, new="path" if adds else "")

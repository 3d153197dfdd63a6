"""``python -m benchmark run``: one experiment, or a sweep with -m, as plain Hydra."""

from __future__ import annotations

import importlib.util
import itertools
import shutil
import sys
from collections.abc import Callable, Sequence
from typing import Any

import hydra
from hydra import compose as hydra_compose
from hydra import initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.errors import ConfigCompositionException, HydraException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from benchmark.cli.sweep import CODES, Sweep, Trackers, carry_out, plain, print_result, temporarily
from benchmark.config.compose import group_names
from benchmark.errors import ConfigError, UserError, nearest
from benchmark.paths import CONF

HYDRA_GROUPS = ("dataset", "partition", "model", "method", "selection", "preset", "tracking")
ADDING = " (Put + before a key to add one where a rule takes it.)"
TELLING = {"--help", "-h", "--hydra-help", "--version", "--info", "--cfg", "-c"}
"""Flags that make Hydra say something and run nothing."""


def main(words: Sequence[str]) -> int:
    """Hand ``words`` to Hydra after checking them; exit code 0, 1 (a run failed), 2 (user's mistake) or 130."""
    many = bool({"-m", "--multirun"} & set(words))
    if TELLING & set(words):
        _start(words, _one([], Trackers()))
        return 0
    overrides = _parse([word for word in words if not word.startswith("-")])
    _check(overrides, many)
    settings = _settings_of_launcher(overrides, many)
    fixed = [*(_line(override) for override in overrides if override.is_hydra_override()), *settings]
    combinations = _combinations(overrides)
    config = _compose([*fixed, *combinations[0]])
    if many:
        others = any(override.key_or_group.startswith("hydra/sweeper") for override in overrides)
        sweep = Sweep(tuple(words), tuple(settings), config, None if others else combinations)
        return sweep.carry_out(_start, lambda combination: _compose([*fixed, *combination]))
    codes: list[int] = []
    with Trackers() as trackers:
        _start(words, _one(codes, trackers))
    return max(codes, default=0)


def _start(words: Sequence[str], job: Callable[[DictConfig], None]) -> None:
    """Have Hydra call ``job`` as the words say. What it raises is handed on; `ConfigError` for errors of its own."""
    sys.argv = ["python -m benchmark run", *words]
    with temporarily({"HYDRA_FULL_ERROR": "1"}):
        try:
            hydra.main(version_base="1.3", config_path=str(CONF), config_name="config")(job)()
        except HydraException as error:
            raise ConfigError(f"run: {_first_sentence(error)}") from error


def _one(codes: list[int], trackers: Trackers) -> Callable[[DictConfig], None]:
    def job(config: DictConfig) -> None:
        try:
            run = plain(config)
            trackers.follow(config, run)
            state, message = carry_out(run)
        except ValueError as error:  # Hydra would add lines of its own
            if not isinstance(error, UserError):
                raise
            print(f"error: {error}", file=sys.stderr)
            codes.append(CODES["refused"])
            return
        print_result(run, state, message)
        codes.append(CODES.get(state, 1))

    return job


# Checks that give better messages than Hydra's ---------------------------------------------------------------


def _parse(words: Sequence[str]) -> list[Override]:
    try:
        return OverridesParser.create().parse_overrides(list(words))
    except HydraException as error:
        raise ConfigError(f"run: cannot read the command line: {_first_sentence(error)}") from error


def _first_sentence(error: Exception) -> str:
    return str(error).splitlines()[0]


def _line(override: Override) -> str:
    return str(override.input_line)


def _choices(override: Override) -> list[str]:
    if override.is_sweep_override():
        return [str(value) for value in override.sweep_string_iterator()]
    return [str(override.value())]


def _combinations(overrides: Sequence[Override]) -> list[list[str]]:
    """The words of each run of a sweep, in Hydra's order; of no sweep, one list."""
    axes: dict[str, list[str]] = {}
    for override in overrides:
        if not override.is_hydra_override():
            key = override.get_key_element()
            swept = override.is_sweep_override()
            axes[key] = [f"{key}={choice}" for choice in _choices(override)] if swept else [_line(override)]
    return [list(words) for words in itertools.product(*axes.values())]


def _check(overrides: Sequence[Override], many: bool) -> None:
    """Refuse several values without a sweep, and unknown choices with the nearest match; `ConfigError`."""
    for override in overrides:
        key = override.key_or_group
        if override.is_sweep_override() and not override.is_discrete_sweep():
            raise ConfigError(
                f"{key}: came {_line(override)!r}; a sweep takes a list of values, a,b,c or range(0,3)."
            )
        choices = _choices(override)
        if override.is_sweep_override() and (not many or override.is_hydra_override()):
            ways = f"Put -m behind `run` for one run of each, or write a list as [{','.join(choices)}]."
            if override.is_hydra_override():
                ways = "This is the same for all runs of a sweep: give one."
            raise ConfigError(f"{key}: came several values ({', '.join(choices)}). {ways}")
        if key in HYDRA_GROUPS:
            known = group_names(key)
            for choice in choices:
                if choice not in known:
                    raise ConfigError(
                        f"{key}: came {choice!r}.{nearest(choice, known)} Allowed: {', '.join(known)} (conf/{key}/)."
                    )


def _settings_of_launcher(overrides: Sequence[Override], many: bool) -> list[str]:
    """The word that sets our defaults of a launcher of jobs; `ConfigError` for a launcher that cannot work."""
    chosen = [str(o.value()) for o in overrides if o.key_or_group == "hydra/launcher"]
    if not chosen:
        return []
    name = chosen[-1]
    ours = group_names("hydra/sweep")
    if not many:
        raise ConfigError(
            f"hydra/launcher: came {name!r}, which begins the runs of a sweep. Put -m behind `run`, or leave it out."
        )
    if name in ours and not _plugin_is_there():
        raise ConfigError(
            f"hydra/launcher: came {name!r}, whose plugin is not installed. Install it with `pip install "
            "hydra-submitit-launcher`, or take hydra/launcher=basic, which needs nothing."
        )
    known = sorted({*_launchers(), *ours})
    if name not in known:
        raise ConfigError(
            f"hydra/launcher: came {name!r}.{nearest(name, known)} Allowed: {', '.join(known)}."
        )
    if name == "submitit_slurm" and not (shutil.which("sbatch") and shutil.which("srun")):
        raise ConfigError(
            "hydra/launcher: came 'submitit_slurm', but there is no `sbatch` on this machine. Give the command on a "
            "login node of the cluster, or take hydra/launcher=submitit_local."
        )
    return [f"+hydra/sweep@hydra.launcher={name}"] if name in ours else []


def _plugin_is_there() -> bool:
    try:
        return importlib.util.find_spec("hydra_plugins.hydra_submitit_launcher") is not None
    except ModuleNotFoundError:  # not even the package of all plugins
        return False


def _launchers() -> list[str]:
    """The launchers that Hydra finds, plugins included."""
    with initialize_config_dir(str(CONF), version_base="1.3"):
        loader = GlobalHydra.instance().config_loader()
        return [str(name) for name in loader.get_group_options("hydra/launcher")]


def _compose(words: Sequence[str]) -> DictConfig:
    """The configuration of one run with Hydra's own node; `ConfigError` for unknown keys, with the nearest match."""
    try:
        with initialize_config_dir(str(CONF), version_base="1.3"):
            return hydra_compose("config", overrides=list(words), return_hydra_config=True)
    except (ConfigCompositionException, OmegaConfBaseException) as error:
        raise ConfigError(_explain(error, words)) from error


def _flatten(node: dict[str, Any], prefix: str = "") -> list[str]:
    keys = []
    for key, value in node.items():
        keys.append(prefix + str(key))
        if isinstance(value, dict):
            keys += _flatten(value, f"{prefix}{key}.")
    return keys


def _explain(error: Exception, words: Sequence[str]) -> str:
    with initialize_config_dir(str(CONF), version_base="1.3"):
        chosen = ("hydra/launcher", "+hydra/sweep@hydra.launcher", *HYDRA_GROUPS)
        groups = [word for word in words if word.split("=")[0] in chosen]
        config = hydra_compose("config", overrides=groups, return_hydra_config=True)
    node: Any = OmegaConf.to_container(config)
    launcher = [f"hydra.launcher.{key}" for key in node.pop("hydra")["launcher"] if key != "_target_"]
    keys = [*_flatten(node), *HYDRA_GROUPS, *launcher]
    for word in words:
        key = word.split("=")[0].lstrip("~")
        if word.startswith("+"):
            continue  # meant to be new
        if key not in keys and (not key.startswith("hydra") or key.startswith("hydra.launcher.")):
            siblings = [k for k in keys if k.rpartition(".")[0] == key.rpartition(".")[0]]
            hint = "" if key.startswith("hydra") else ADDING
            allowed = ", ".join(siblings) or ", ".join(node)
            return f"{key}: unknown key.{nearest(key, keys)} Allowed there: {allowed}.{hint}"
    cause = f" {error.__cause__}" if error.__cause__ is not None else ""
    return " ".join(f"{error}{cause}".split("\nSet the environment")[0].split())

"""``python -m benchmark run``: one experiment, or a sweep with -m, as plain Hydra."""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import hydra
from hydra import compose as hydra_compose
from hydra import initialize_config_dir
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.errors import ConfigCompositionException, HydraException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from benchmark.commands.tracking import tags_of
from benchmark.errors import ConfigError, is_users_mistake, nearest
from benchmark.runs.config import CONF, RunConfig, group_names, resolve
from benchmark.runs.tracking import TrackedRun, Tracker, TrackingSettings, tracking

HYDRA_GROUPS = ("dataset", "partition", "model", "method", "selection", "preset", "tracking")


def main(words: Sequence[str]) -> int:
    """Hand ``words`` to Hydra after checking them; exit code 0, 1 (a run failed), 2 (user's mistake) or 130."""
    if not {"--help", "-h", "--hydra-help", "--version", "--info", "--cfg", "-c"} & set(words):
        sweep = bool({"-m", "--multirun"} & set(words))
        _check([word for word in words if not word.startswith("-")], sweep)
    codes: list[int] = []
    sys.argv = ["python -m benchmark run", *words]

    with contextlib.ExitStack() as stack:
        # One tracker for all runs of a sweep, which begins with the first of them.
        trackers: dict[str, Tracker] = {}

        @hydra.main(version_base="1.3", config_path=str(CONF), config_name="config")
        def entry(config: DictConfig) -> None:
            codes.append(_one(config, trackers, stack))

        entry()
    return max(codes, default=0)


def _one(config: DictConfig, trackers: dict[str, Tracker], stack: contextlib.ExitStack) -> int:
    plain: Any = OmegaConf.to_container(config, resolve=True)
    try:
        resolved = resolve(plain)
        root = Path(resolved.paths.results)
        settings = TrackingSettings.of(plain["tracking"])
        place = f"{root.absolute()} {settings}"
        if place not in trackers:
            trackers[place] = stack.enter_context(tracking(settings, root, []))
        trackers[place].follow(TrackedRun(resolved.key, "", tags_of(resolved)))
        return run_here(resolved)
    except ValueError as error:
        if not is_users_mistake(error):
            raise
        print(f"error: {error}", file=sys.stderr)
        return 2


def run_here(config: RunConfig) -> int:
    """Carry out one run in this process and say where it is."""
    from benchmark.runs.run import execute

    with stop_on_signals() as stop:
        state, message = execute(config, _print_progress if sys.stdout.isatty() else _silent, stop.is_set)
    if state == "busy":
        raise ConfigError(message)
    folder = f"{config.paths.results}/runs/{config.key}"
    print(f"{state}: {folder}" + (f" ({message})" if message else ""))
    if state in ("done", "diverged"):
        _print_result(config)
    return {"done": 0, "diverged": 0, "interrupted": 130}.get(state, 1)


def _print_result(config: RunConfig) -> None:
    from benchmark.runs.store import Results

    status = Results(Path(config.paths.results)).run(config.key).status()
    for split, values in (status.final if status else {}).items():
        print(f"  {split}: " + ", ".join(f"{name} {value:.4f}" for name, value in values.items()))


def _print_progress(round: int, rounds: int) -> None:
    print(f"\rround {round}/{rounds}", end="\n" if round == rounds else "", flush=True)


def _silent(round: int, rounds: int) -> None:
    return None


@contextmanager
def stop_on_signals() -> Iterator[threading.Event]:
    """An event that SIGINT and SIGTERM set, so that the run writes a checkpoint and ends by itself."""
    event = threading.Event()
    old = {
        number: signal.signal(number, lambda *_: event.set()) for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        yield event
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)


# Checks that give better messages than Hydra's ---------------------------------------------------------------


def _choices(override: Override) -> list[str]:
    if override.is_sweep_override():
        return [str(value) for value in override.sweep_string_iterator()]
    return [str(override.value())]


def _check(words: Sequence[str], sweep: bool) -> None:
    """Refuse unknown groups, choices and keys with the nearest match; ConfigError."""
    try:
        overrides = OverridesParser.create().parse_overrides(list(words))
    except HydraException as error:
        raise ConfigError(f"run: cannot read the command line: {str(error).splitlines()[0]}") from error
    single = []
    for override in overrides:
        key = override.key_or_group
        choices = _choices(override)
        if override.is_sweep_override() and not sweep:
            raise ConfigError(
                f"{key}: came several values ({', '.join(choices)}). Put -m behind `run` for one run of each, or write "
                f"a list as [{','.join(choices)}]."
            )
        if key in HYDRA_GROUPS:
            known = group_names(key)
            for choice in choices:
                if choice not in known:
                    raise ConfigError(
                        f"{key}: came {choice!r}.{nearest(choice, known)} Allowed: {', '.join(known)} (conf/{key}/)."
                    )
        line = str(override.input_line)
        single.append(f"{line.split('=', 1)[0]}={choices[0]}" if override.is_sweep_override() else line)
    # Some words mean something to Hydra itself and not to our configuration.
    single = [word for word in single if not word.lstrip("+~").startswith(("hydra.", "hydra/"))]
    try:
        with initialize_config_dir(str(CONF), version_base="1.3"):
            hydra_compose("config", overrides=single)
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
        groups = [word for word in words if word.split("=")[0] in HYDRA_GROUPS and "," not in word]
        plain: Any = OmegaConf.to_container(hydra_compose("config", overrides=groups))
    keys = [*_flatten(plain), *HYDRA_GROUPS]
    for word in words:
        key = word.split("=")[0].lstrip("~")
        if word.startswith("+"):
            continue  # meant to be new
        if key not in keys and not key.startswith("hydra"):
            siblings = [k for k in keys if k.rpartition(".")[0] == key.rpartition(".")[0]]
            return (
                f"{key}: unknown key.{nearest(key, keys)} Allowed there: {', '.join(siblings) or ', '.join(plain)}. "
                "(Put + before a key to add one where a rule takes it.)"
            )
    return " ".join(str(error).split("\nSet the environment")[0].split())

"""Carries out the missing runs of a command: prepares the launch, starts workers, follows the results folder."""

from __future__ import annotations

import contextlib
import shutil
import signal
import sys
import threading
import time
import uuid
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from benchmark import code
from benchmark.config.schema import RunConfig
from benchmark.errors import ConfigError, wrong
from benchmark.launch.local import Workers
from benchmark.launch.progress import Following, say
from benchmark.launch.settings import LocalSettings
from benchmark.launch.work import Plan, work
from benchmark.paths import ROOT
from benchmark.runs.claim import BEAT_SECONDS
from benchmark.runs.index import RunIndex
from benchmark.runs.status import RunResult
from benchmark.tracking import Wandb

if TYPE_CHECKING:
    from benchmark.runs.execute import Progress

SHOWN = 20
"""Runs that are told one by one."""

POLL_SECONDS = 0.1


STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
"""Ctrl-C, the end by a batch system or `timeout`, a closed terminal, and Ctrl-\\."""

SECOND_PRESS = 1.0
"""Seconds between a first and a second Ctrl-C. `make` and other wrappers deliver one press twice within less."""


@dataclass
class StopRequest:
    """Whether to stop: ``reason`` is the signal that asked for it, ``urgent`` to stop at once, without saving."""

    reason: str = ""
    urgent: bool = False
    asked_at: float = 0.0

    def __call__(self) -> bool:
        return bool(self.reason)


@contextlib.contextmanager
def signals_request_stop(stop: StopRequest, raises: bool = False) -> Iterator[None]:
    """Inside the ``with``, the signals of `STOP_SIGNALS` request a stop, and a second Ctrl-C an urgent one.

    A signal that is ignored stays ignored, since `nohup` and background jobs of scripts ask for that. ``raises``: an
    urgent request raises KeyboardInterrupt.
    """

    def handle(number: int, frame: FrameType | None) -> None:
        now = time.monotonic()
        if not stop.reason:
            stop.reason, stop.asked_at = signal.Signals(number).name, now
        elif number == signal.SIGINT and now - stop.asked_at >= SECOND_PRESS:
            stop.urgent = True
        if raises and stop.urgent:
            raise KeyboardInterrupt

    before = {}
    if threading.current_thread() is threading.main_thread():  # another one cannot catch signals
        for number in STOP_SIGNALS:
            if signal.getsignal(number) not in (signal.SIG_IGN, None):
                before[number] = signal.signal(number, handle)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def plan_of(following: Following, runs: Sequence[RunConfig], grace: float, wandb: Wandb | None) -> Plan:
    """The plan of a launch. The snapshot of its code is made; paths are absolute, for it lies elsewhere."""
    root = following.index.results.root.absolute()
    following.index.code = code.snapshot(root / "code").name
    absolute = tuple(map(_absolute, runs))
    return Plan(
        id=following.launch, root=root, runs=absolute, code=following.index.code, grace=grace, tracking=wandb
    )


def _absolute(run: RunConfig) -> RunConfig:
    """A configuration whose files do not depend on where the code of a process lies."""
    plain = run.model_dump(mode="json")
    start = plain["model"].get("start")
    if start and "/" in start:  # its name carries its content
        plain["model"]["start"] = str(ROOT / start)
    plain["paths"]["results"] = str(Path(plain["paths"]["results"]).absolute())
    return RunConfig.model_validate(plain)


def move_others(index: RunIndex, keys: Collection[str]) -> None:
    """Move finished runs away that are damaged, or whose own code or data are others now; and tidy the others."""
    moved = {}
    for key in index.results.finished(keys):
        folder = index.results.run(key)
        if why := index.why(key):
            moved[key] = f"{key}: {why}; what was there is now in {folder.move_away()}"
        elif folder.is_claimed:
            with folder.claimed() as is_ours:
                if is_ours:  # its process died after the last rename
                    folder.tidy(folder.read_config().runtime.keep_checkpoint)
    for text in list(moved.values())[:SHOWN]:
        say(f"carried out again: {text}")
    if len(moved) > SHOWN:
        say(f"and {len(moved) - SHOWN} more")
    index.forget(moved)


def carry_out(
    following: Following, runs: Sequence[RunConfig], settings: LocalSettings, wandb: Wandb | None = None
) -> int:
    """Carry out runs on this machine; exit code 0, 1 (not all have ended well) or 130 (stopped)."""
    inline = settings.name == "inline"
    if inline and (settings.workers not in (None, 1) or settings.devices):
        got = f"workers={settings.workers}, devices={settings.devices}"
        raise ConfigError(wrong("launcher", got, "neither with launcher=inline", where="with launcher=local"))
    plan, stop = plan_of(following, runs, settings.grace, wandb), StopRequest()
    problem = ""
    with signals_request_stop(stop, raises=inline), following:
        if inline:
            _inline(plan, following, stop)
        else:
            problem = _local(plan, settings, following, stop)
    if problem:
        print(f"error: {problem}", file=sys.stderr)
    has_failed = bool(following.failed or problem)
    if not has_failed:
        shutil.rmtree(plan.path.parent, ignore_errors=True)
    return 130 if stop() else int(has_failed)


def run_here(index: RunIndex, config: RunConfig, progress: Progress, wandb: Wandb | None = None) -> RunResult:
    """Carry out one run in this process, or read it if it is there.

    Raises:
        UserError: The run failed because of a user's mistake, or another process works on it.
    """
    from benchmark.runs.execute import Launch, execute  # with it torch

    move_others(index, [config.key])
    folder, stop = index.results.run(config.key), StopRequest()
    with signals_request_stop(stop, raises=True), folder.claimed() as is_ours:
        found = index.result(config.key)
        if found is not None:
            return RunResult(found.state, found.message)
        if not is_ours:
            raise ConfigError(f"another process works on the run {folder.path}.")
        index.code = code.snapshot(index.results.root.absolute() / "code").name
        index.forget([config.key])
        launch = Launch(uuid.uuid4().hex, index.code, wandb.begin if wandb else None)
        return execute(config, folder, launch, progress, stop)


def _inline(plan: Plan, following: Following, stop: StopRequest) -> None:
    """Carry all runs out in this process."""

    def stopping() -> bool:
        following.look()
        return stop()

    try:
        while following.open and not stop():
            begun = work(plan, stopping, told=lambda _: following.look(at_once=True))
            following.look(at_once=True)
            if not begun:
                _wait_for_others(following, stop)
    except KeyboardInterrupt:
        if not stop.urgent:
            raise


def _local(plan: Plan, settings: LocalSettings, following: Following, stop: StopRequest) -> str:
    """Carry all runs out in processes; why none can be started, else an empty text."""
    plan.write()
    workers = Workers(plan, settings)
    while following.open and not stop():
        before = following.begun
        workers.start(len(following.open))
        while workers.alive and not stop():
            following.look()
            time.sleep(POLL_SECONDS)
        if stop():
            say(f"stopping on {stop.reason}: runs save their state; Ctrl-C again ends them at once")
            workers.stop(lambda: stop.urgent)
        following.look(at_once=True)
        if following.open and following.begun == before:
            if words := workers.last_words():
                return f"no worker can be started. The last lines of one:\n{words}"
            _wait_for_others(following, stop)
    return ""


def _wait_for_others(following: Following, stop: StopRequest) -> None:
    """Other processes work on all runs that are left: let them go on for a while."""
    if not following.open or stop():
        return
    say(f"{len(following.open)} runs are worked on by another command; waiting for them")
    began = time.monotonic()
    while following.open and not stop() and time.monotonic() - began < BEAT_SECONDS:
        following.look()
        time.sleep(POLL_SECONDS)

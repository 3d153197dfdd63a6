"""Carry out many tasks: one after another in this process, or in worker processes of this machine."""

import time
from collections import Counter
from collections.abc import Callable, Sequence

from benchmark.errors import ConfigError, wrong
from benchmark.launch.mps import mps_of
from benchmark.launch.pool import Pool
from benchmark.launch.resources import assign_devices, shared_gpus
from benchmark.launch.settings import LocalSettings
from benchmark.launch.tasks import (
    WORKER_DIED,
    Listener,
    Outcome,
    StopRequest,
    Task,
    Work,
    signals_request_stop,
)
from benchmark.launch.worker import attempt, load
from benchmark.runs.lease import BEAT_SECONDS
from benchmark.runs.status import RunState
from benchmark.system import NO_GPU_MEMORY


def launch(
    tasks: Sequence[Task],
    work: str,
    settings: LocalSettings,
    *,
    retries: int = 0,
    patience: float = 0.0,
    listener: Listener,
    stop: StopRequest | None = None,
) -> list[Outcome]:
    """Carry out all tasks, begun in the given order, and return how each ended, in that order.

    When all have ended, those to try again begin: what was interrupted, what has failures left, and what another
    process works on. After a lack of GPU memory each GPU has one worker.

    The signals of `STOP_SIGNALS` stop the launch: no further task begins, and tasks that have begun are asked to save
    their state and to return. They have ``settings.grace`` seconds for that, or until a second Ctrl-C. Tasks that were
    not begun have no outcome.

    Args:
        tasks: What to do. Keys are unique.
        work: Name of the work function, ``module:function``, imported once in each process.
        settings: ``inline``: one after another in this process; ``local``: in processes that stay for many tasks.
        retries: How often a task that failed is tried again; at least once if its worker died or had no GPU memory.
        patience: Seconds for which tasks that other processes work on are tried again.
        listener: Is told of progress.
        stop: By which others than signals can ask to stop, from any thread.

    Raises:
        ConfigError: A setting that is not allowed.
        LaunchError: Workers die before their first task.
    """
    inline = settings.name == "inline"
    if inline and (settings.workers not in (None, 1) or settings.devices):
        got = f"workers={settings.workers}, devices={settings.devices}"
        raise ConfigError(wrong("launcher", got, "neither with launcher=inline", where="with launcher=local"))
    stop = StopRequest() if stop is None else stop

    def carry_out(some: Sequence[Task], alone: bool) -> list[Outcome]:
        if inline:
            return _run_inline(some, load(work), listener, stop)
        places = assign_devices(len(some), settings)
        places = list(dict.fromkeys(places)) if alone else places
        with mps_of(shared_gpus(places) if settings.mps else []) as services:
            return Pool(some, work, places, settings, listener, stop, services).run()

    with signals_request_stop(stop, raises=inline):
        listener.started(tasks)
        try:
            return _with_retries(tasks, carry_out, retries, patience, stop)
        finally:
            listener.finished()


def _with_retries(
    tasks: Sequence[Task],
    carry_out: Callable[[Sequence[Task], bool], list[Outcome]],
    retries: int,
    patience: float,
    stop: StopRequest,
) -> list[Outcome]:
    """Carry out all tasks, then those that are to be tried again; ``carry_out(tasks, alone)`` carries out each once."""
    outcomes: dict[str, Outcome] = {}
    failures: Counter[str] = Counter()
    left, alone = list(tasks), False
    while left and not stop.reason:
        ended = carry_out(left, alone)
        outcomes |= {outcome.key: outcome for outcome in ended}
        failures.update(outcome.key for outcome in ended if outcome.state is RunState.FAILED)
        alone = alone or any(outcome.error == NO_GPU_MEMORY for outcome in ended)
        left = [
            task
            for task in left
            if task.key in outcomes
            and _may_try_again(outcomes[task.key], failures[task.key], retries, patience)
        ]
        if left and all(outcomes[task.key].state is RunState.RUNNING for task in left):
            _wait(stop)
            patience -= BEAT_SECONDS
    return [outcomes[task.key] for task in tasks if task.key in outcomes]


def _may_try_again(outcome: Outcome, failures: int, retries: int, patience: float) -> bool:
    if outcome.state is RunState.RUNNING:
        return patience > 0
    by_system = outcome.error in (WORKER_DIED, NO_GPU_MEMORY)
    may_fail_again = outcome.state is RunState.FAILED and failures <= max(retries, by_system)
    return may_fail_again or outcome.state is RunState.INTERRUPTED


def _wait(stop: StopRequest) -> None:
    """Let the other processes that work on runs go on for a while."""
    began = time.monotonic()
    while not stop.reason and time.monotonic() - began < BEAT_SECONDS:
        time.sleep(min(0.2, BEAT_SECONDS))


def _run_inline(tasks: Sequence[Task], work: Work, listener: Listener, request: StopRequest) -> list[Outcome]:
    told = False

    def stop() -> bool:
        nonlocal told
        listener.look()
        if request.reason and not told:
            told = True
            listener.stopping(f"{request.reason}: the run saves its state; Ctrl-C again ends it at once")
        return request.reason is not None

    outcomes: list[Outcome] = []
    for task in tasks:
        if stop():
            break
        listener.task_started(task.key)
        began = time.perf_counter()
        try:
            outcome = attempt(work, task, stop)
        except KeyboardInterrupt:
            if not request.urgent:
                raise
            message = "ended by a second Ctrl-C before it saved its state"
            outcome = Outcome(task.key, RunState.INTERRUPTED, message, time.perf_counter() - began)
        outcomes.append(outcome)
        listener.task_ended(outcome)
    return outcomes

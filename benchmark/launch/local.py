"""Carry out many tasks: one after another in this process, or in worker processes of this machine."""

import time
from collections.abc import Sequence
from functools import partial
from typing import Literal

from benchmark.errors import ConfigError, wrong
from benchmark.launch.pool import Pool
from benchmark.launch.resources import assign_devices
from benchmark.launch.tasks import Listener, Outcome, StopRequest, Task, Work, signals_request_stop
from benchmark.launch.worker import attempt, load
from benchmark.runs.status import RunState

KINDS = ("inline", "local")


def launch(
    tasks: Sequence[Task],
    work: str,
    *,
    kind: Literal["inline", "local"],
    workers: int | None = None,
    threads: int = 1,
    devices: Sequence[str] | None = None,
    grace: float = 30.0,
    listener: Listener,
    stop: StopRequest | None = None,
) -> list[Outcome]:
    """Carry out all tasks, begun in the given order, and return how each ended, in that order.

    The signals of `STOP_SIGNALS` stop the launch: no further task begins, and tasks that have begun are asked to save
    their state and to return. They have ``grace`` seconds for that, or until a second Ctrl-C. Tasks that were not begun
    have no outcome.

    Args:
        tasks: What to do. Keys are unique.
        work: Name of the work function, ``module:function``, imported once in each process.
        kind: ``inline``: one after another in this process. ``local``: in worker processes that stay for many tasks.
        workers: Number of processes (local). Default one per device, or one per usable core divided by ``threads``.
        threads: Threads of the numerical libraries in each worker (local). A run sets its own number.
        devices: ``cuda:0`` ..., assigned to the workers in turn (each sees only its own), or ``cpu`` alone, which hides
            all GPUs. Default every GPU, else the CPU (local).
        grace: Seconds between the request to stop and the end by force (local).
        listener: Is told of progress.
        stop: By which others than signals can ask to stop, from any thread.

    Raises:
        ConfigError: A setting that is not allowed.
        LaunchError: Workers die before their first task.
    """
    _check(kind, workers, threads, devices, grace)
    stop = stop or StopRequest()
    with signals_request_stop(stop, raises=kind == "inline"):
        listener.started(tasks)
        try:
            if kind == "inline":
                return _run_inline(tasks, load(work), listener, stop)
            assigned = assign_devices(len(tasks), workers, threads, devices) if tasks else []
            return Pool(tasks, work, assigned, threads, grace, listener, stop).run()
        finally:
            listener.finished()


def _check(kind: str, workers: int | None, threads: int, devices: Sequence[str] | None, grace: float) -> None:
    if kind not in KINDS:
        raise ConfigError(wrong("launcher", kind, f"one of {', '.join(KINDS)}", known=KINDS))
    if kind == "inline" and (workers not in (None, 1) or devices):
        got = f"workers={workers}, devices={devices}"
        raise ConfigError(wrong("launcher", got, "neither with launcher=inline", where="with launcher=local"))
    if workers is not None and workers < 1:
        raise ConfigError(wrong("workers", workers, "1 or more, or null for one per core or GPU"))
    if threads < 1:
        raise ConfigError(wrong("threads", threads, "1 or more"))
    if grace < 0:
        raise ConfigError(wrong("launcher.grace", grace, "0 seconds or more"))


def _run_inline(tasks: Sequence[Task], work: Work, listener: Listener, request: StopRequest) -> list[Outcome]:
    told = False

    def stop() -> bool:
        nonlocal told
        if request.reason and not told:
            told = True
            listener.stopping(
                f"{request.reason}: the current run saves its state; Ctrl-C again ends it at once"
            )
        return request.reason is not None

    outcomes: list[Outcome] = []
    for task in tasks:
        if stop():
            break
        listener.task_started(task.key)
        began = time.perf_counter()
        try:
            outcome = attempt(work, task, partial(listener.progress, task.key), stop)
        except KeyboardInterrupt:
            if not request.urgent:
                raise
            message = "ended by a second Ctrl-C before it saved its state"
            outcome = Outcome(task.key, RunState.INTERRUPTED, message, time.perf_counter() - began)
        outcomes.append(outcome)
        listener.task_ended(outcome)
    return outcomes

"""Do many tasks: in this process, or in worker processes of this machine.

A task is a key and a payload; what is done with it is a function named ``module:function`` (see `worker.Work`). The
launcher knows nothing of configurations, results or torch, so it can be tested with functions of three lines.

Workers are fresh interpreters, one connection each and nothing shared among them: whatever way a worker dies, no lock
and no queue is left behind in a state that another one could trip over. They are started as commands and not through
multiprocessing.Process, which would run the caller's main module again in each, would offer no way to give each its
own environment before its first import, and would write what a dying worker says across the terminal.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import pickle
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing import Pipe
from multiprocessing.connection import wait
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any, Literal, Protocol

from benchmark.errors import ConfigError, nearest
from benchmark.launch.worker import Reporter, Rounds, attempt, load, set_threads

log = logging.getLogger(__name__)

KINDS = ("inline", "local")

THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
)
"""Read by numerical libraries when they are imported."""

START_ATTEMPTS = 3
"""Workers that may die before their first task, in a row, before no more are started."""

SECOND_PRESS = 1.0
"""Seconds between a first and a second Ctrl-C: `make` and other wrappers deliver one press twice, moments apart."""

EXIT_SECONDS = 5.0
"""Time that a worker without a task has to leave by itself."""

LOOK_SECONDS = 1.0
"""A dead worker shows by its closed connection; this often by its process, which a child of its own may outlive."""

OUTPUT_LIMIT = 1 << 20
"""Bytes of a worker's output that are kept; only the end of it is ever shown."""

# One line: it is what `ps` shows. SIGUSR2 goes to all processes of a batch job and would end one that does not know it;
# what it means for workers is the launcher's business.
_BOOT = (
    "import signal, sys; signal.signal(signal.SIGUSR2, signal.SIG_IGN); "
    "from multiprocessing.connection import Connection; connection = Connection(int(sys.argv[1])); "
    "sys.path[:], *arguments = connection.recv(); "
    "from benchmark.launch.worker import serve; serve(connection, *arguments)"
)


class LaunchError(RuntimeError):
    """No worker can be started; the message ends with the last words of the last one. ``outcomes``: what was done."""

    outcomes: Sequence[Outcome] = ()


@dataclass(frozen=True)
class Task:
    """One thing to do: a unique readable key, its number of rounds (for the time left), a picklable payload."""

    key: str
    rounds: int
    payload: Any


Ending = Literal["done", "diverged", "failed", "crashed", "interrupted", "busy"]


@dataclass(frozen=True)
class Outcome:
    """How a task ended. The message's first line says why; a traceback or a worker's last output may follow."""

    key: str
    status: Ending
    message: str
    seconds: float


class Listener(Protocol):
    """Is told what happens, in the launcher's thread: what it does must be quick, what it raises stops the launch."""

    def started(self, tasks: Sequence[Task]) -> None:
        """Before the first task."""

    def task_started(self, key: str) -> None:
        """A task begins."""

    def progress(self, key: str, round: int, rounds: int) -> None:
        """``round`` of ``rounds`` rounds are done; the first call of a task says where it took up, or one more."""

    def task_ended(self, outcome: Outcome) -> None:
        """A task has ended, well or not."""

    def stopping(self, message: str) -> None:
        """Somebody asked to stop; tasks that have begun save their state."""

    def finished(self, outcomes: Sequence[Outcome]) -> None:
        """The last call, also when the launch ends by an error."""


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
    stop: Stop | None = None,
) -> list[Outcome]:
    """Do all tasks, begun in the given order, and return how each ended, in that order.

    Ctrl-C, SIGTERM and SIGHUP stop cleanly: no task is begun any more, begun ones are asked to save their state and
    to return, for ``grace`` seconds or until a second Ctrl-C; tasks that were not begun have no outcome. In a thread
    other than the main one signals are not looked at.

    Args:
        tasks: what to do; keys are unique.
        work: ``module:function``, imported once in each process.
        kind: ``inline``: one after another in this process. ``local``: in worker processes that stay for many tasks.
        workers: number of processes (local); default one per device, or one per usable core divided by ``threads``.
        threads: threads of the numerical libraries in each process.
        devices: ``cuda:0`` ... dealt to the workers in turn (each sees only its own), or ``cpu`` alone, which hides
            all GPUs; default every GPU that there is, else the CPU (local).
        grace: seconds between the request to stop and the end by force (local).
        listener: is told of progress.
        stop: by which others than signals may ask to stop, from any thread; stays open.

    Raises:
        ConfigError: a setting that is not allowed.
        LaunchError: workers die before their first task.
    """
    _check(tasks, kind, workers, threads, devices, grace)
    outcomes: list[Outcome | None] = [None] * len(tasks)
    with contextlib.ExitStack() as stack:
        if stop is None:
            stop = stack.enter_context(contextlib.closing(Stop()))
        stack.enter_context(_Signals(stop))
        listener.started(tasks)
        try:
            if kind == "inline":
                _inline(tasks, outcomes, load(work), threads, listener, stop)
            elif tasks:
                slots = [_Slot(device) for device in _deal(len(tasks), workers, threads, devices)]
                _Pool(tasks, outcomes, work, slots, threads, grace, listener, stop).run()
        except LaunchError as error:
            error.outcomes = [outcome for outcome in outcomes if outcome]
            raise
        finally:
            listener.finished([outcome for outcome in outcomes if outcome])
    return [outcome for outcome in outcomes if outcome]


def _check(
    tasks: Sequence[Task],
    kind: str,
    workers: int | None,
    threads: int,
    devices: Sequence[str] | None,
    grace: float,
) -> None:
    if kind not in KINDS:
        raise ConfigError(f"launcher: came {kind!r}; allowed: {', '.join(KINDS)}.{nearest(kind, KINDS)}")
    if kind == "inline" and (workers not in (None, 1) or devices):
        raise ConfigError(
            f"launcher: came workers={workers}, devices={devices}; the inline launcher has neither, it works in "
            "this process on runtime.device. Set launcher=local, or leave them out."
        )
    if workers is not None and workers < 1:
        raise ConfigError(f"workers: came {workers}; allowed: 1 or more, or null for one per core or GPU.")
    if threads < 1:
        raise ConfigError(f"threads: came {threads}; allowed: 1 or more.")
    if grace < 0:
        raise ConfigError(f"launcher.grace: came {grace}; allowed: 0 seconds or more.")
    keys = {task.key for task in tasks}
    if len(keys) < len(tasks):
        raise ValueError(f"{len(tasks) - len(keys)} of {len(tasks)} tasks have the key of another one")


# Resources -------------------------------------------------------------------------------------------------------


def usable_cores() -> int:
    """Cores that this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def cuda_devices() -> int:
    """GPUs that a worker's torch would see. Imports torch only where there are traces of an NVIDIA driver."""
    if not shutil.which("nvidia-smi") and not any(Path("/dev").glob("nvidia[0-9]*")):
        return 0
    import torch

    return torch.cuda.device_count()


def _deal(tasks: int, workers: int | None, threads: int, devices: Sequence[str] | None) -> list[str | None]:
    """The value of CUDA_VISIBLE_DEVICES for each worker; None leaves it as it is."""
    count = 0 if devices and set(devices) == {"cpu"} else cuda_devices()
    devices = devices or [f"cuda:{index}" for index in range(count)]
    visible: list[str | None] = [_visible(device, devices, count) for device in devices] or [None]
    if workers is None:
        workers = len(visible) if count else max(1, usable_cores() // threads)
    return [visible[index % len(visible)] for index in range(min(workers, tasks))]


def _visible(device: str, devices: Sequence[str], count: int) -> str:
    if set(devices) == {"cpu"}:
        return ""
    match = re.fullmatch(r"cuda:(\d+)", device)
    if not match or int(match[1]) >= count:
        there = ", ".join(f"cuda:{index}" for index in range(count)) or "no GPU"
        raise ConfigError(
            f"launcher.devices: came {list(devices)}; allowed: cpu alone, or GPUs by number (here: {there}), "
            "or null for all."
        )
    # The numbers are torch's, which counts what the environment lets it see.
    listed = os.environ.get("CUDA_VISIBLE_DEVICES")
    return listed.split(",")[int(match[1])].strip() if listed else match[1]


# Signals ---------------------------------------------------------------------------------------------------------


class Stop:
    """A request to stop, as flags. Has a file number, so that waiting for workers ends when it comes."""

    def __init__(self) -> None:
        self.asked: str | None = None
        self.urgent = False
        self.raise_when_urgent = False
        self._asked_at = 0.0
        self._read, self._write = os.pipe()
        os.set_blocking(self._read, False)
        os.set_blocking(self._write, False)

    def fileno(self) -> int:
        """Readable once somebody has asked."""
        return self._read

    def close(self) -> None:
        """Give the file numbers back; nobody can ask any more."""
        os.close(self._read)
        os.close(self._write)

    def ask(self, why: str, insists: bool = False) -> None:
        """Stop, because of ``why``; one who ``insists`` some time after the first request wants it at once."""
        now = time.monotonic()
        if self.asked is None:
            self.asked, self._asked_at = why, now
        elif insists and now - self._asked_at >= SECOND_PRESS:
            self.urgent = True
        with contextlib.suppress(BlockingIOError):
            os.write(self._write, b"\0")
        if self.urgent and self.raise_when_urgent:
            raise KeyboardInterrupt

    def drain(self) -> None:
        """Take notice; the next request ends a wait again."""
        with contextlib.suppress(BlockingIOError):
            os.read(self._read, 4096)

    @contextlib.contextmanager
    def raising(self) -> Iterator[None]:
        """Inside, an urgent request raises KeyboardInterrupt."""
        self.raise_when_urgent = True
        try:
            yield
        finally:
            self.raise_when_urgent = False


class _Signals:
    """Inside, Ctrl-C, SIGTERM and SIGHUP ask to stop; in the main thread only."""

    def __init__(self, stop: Stop) -> None:
        self._stop = stop
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> None:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                # What is ignored stays ignored: that is how `nohup` and background jobs of scripts are asked for.
                if signal.getsignal(number) not in (signal.SIG_IGN, None):
                    self._before[number] = signal.signal(number, self._handle)

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self._stop.ask(signal.Signals(number).name, insists=number == signal.SIGINT)


# In this process -------------------------------------------------------------------------------------------------


def _inline(
    tasks: Sequence[Task],
    outcomes: list[Outcome | None],
    work: Callable[..., tuple[str, str]],
    threads: int,
    listener: Listener,
    request: Stop,
) -> None:
    told = False

    def stop() -> bool:
        nonlocal told
        if request.asked and not told:
            told = True
            listener.stopping(
                f"{request.asked}: the current run saves its state; Ctrl-C again ends it at once"
            )
        return request.asked is not None

    for index, task in enumerate(tasks):
        if stop():
            break
        listener.task_started(task.key)
        began = time.perf_counter()
        relay = _Relay(listener, task.key)
        reporter = Reporter(relay)
        set_threads(threads)
        try:
            with request.raising():
                status, message, _ = attempt(work, task.payload, reporter, stop)
        except KeyboardInterrupt:
            if not request.urgent:
                raise
            status, message = "interrupted", "ended by a second Ctrl-C, before it had saved its state"
        relay.last(reporter.seen)
        outcome = Outcome(task.key, status, message, time.perf_counter() - began)  # type: ignore[arg-type]
        outcomes[index] = outcome
        listener.task_ended(outcome)


class _Relay:
    """Hands the reports on one task to the listener: where it took up first, then where it is."""

    def __init__(self, listener: Listener, key: str) -> None:
        self._listener = listener
        self._key = key
        self._told: int | None = None

    def __call__(self, seen: Rounds) -> None:
        first, round, rounds = seen
        for value in (first, round) if self._told is None else (round,):
            if value != self._told:
                self._told = value
                self._listener.progress(self._key, value, rounds)

    def last(self, seen: Rounds | None) -> None:
        """What the throttle may have kept back."""
        if seen is not None:
            self(seen)


# In worker processes ---------------------------------------------------------------------------------------------


class _Worker:
    """One process, the connection to it, and what it is doing."""

    def __init__(self, work: str, threads: int, device: str | None, grace: float) -> None:
        """Start the process; OSError if the system lets us not."""
        self.ready = False
        self.leaving = False
        self.killed = False
        self.served = 0
        self.task: int | None = None
        self.began = 0.0
        self.relay: _Relay | None = None
        environment = os.environ | dict.fromkeys(THREAD_VARIABLES, str(threads))
        if device is not None:
            environment["CUDA_VISIBLE_DEVICES"] = device
        # A file and not a pipe: a worker whose launcher has died still has somewhere to print to.
        self.output = tempfile.TemporaryFile()  # noqa: SIM115 - closed in `bury`
        flags = fcntl.fcntl(self.output, fcntl.F_GETFL)
        fcntl.fcntl(self.output, fcntl.F_SETFL, flags | os.O_APPEND)
        self.connection, theirs = Pipe()
        with theirs:
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-c", _BOOT, str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=self.output,
                stderr=self.output,
                pass_fds=(theirs.fileno(),),
                env=environment,
            )
        with contextlib.suppress(OSError):  # it is dead already; that shows when it is heard
            self.connection.send(([entry or os.getcwd() for entry in sys.path], work, threads, grace))

    def free(self) -> bool:
        """Whether it can be given a task."""
        return self.ready and self.task is None and not self.leaving

    def kill(self) -> None:
        """End it by force; that it has ended shows by its connection."""
        self.killed = True
        self.process.kill()

    def trim(self, keep: int) -> None:
        """Drop its output once there are more than ``keep`` bytes: a task that prints must not fill the disk."""
        if os.fstat(self.output.fileno()).st_size > keep:
            os.truncate(self.output.fileno(), 0)

    def bury(self) -> tuple[str, str]:
        """Reap the process, which has ended or is about to: (how it ended, the last lines of its output)."""
        self.connection.close()
        try:
            code = self.process.wait(EXIT_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            code = self.process.wait()
        size = os.fstat(self.output.fileno()).st_size
        tail = os.pread(self.output.fileno(), 8192, max(0, size - 8192)).decode(errors="replace")
        self.output.close()
        return _exit(code), "\n".join(tail.strip().splitlines()[-25:])


def _exit(code: int) -> str:
    if code >= 0:
        return f"exit code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    return f"killed by {name}" + (" (out of memory?)" if -code == signal.SIGKILL else "")


@dataclass(eq=False)
class _Slot:
    """A place for a worker: its device, who is there, and how often in a row somebody died before a task."""

    device: str | None
    worker: _Worker | None = None
    failures: int = 0


class _Pool:
    """Hands tasks to workers one by one, replaces workers that die, stops when asked."""

    def __init__(
        self,
        tasks: Sequence[Task],
        outcomes: list[Outcome | None],
        work: str,
        slots: list[_Slot],
        threads: int,
        grace: float,
        listener: Listener,
        signals: Stop,
    ) -> None:
        self.tasks = tasks
        self.outcomes = outcomes
        self.work = work
        self.slots = slots
        self.threads = threads
        self.grace = grace
        self.listener = listener
        self.signals = signals
        self.todo = deque(range(len(tasks)))
        self.failures = 0
        self.deadline: float | None = None
        self.looked = 0.0

    def run(self) -> None:
        """Until every task has ended, or those that had begun when somebody asked to stop."""
        try:
            while True:
                self._mind_signals()
                if self.deadline is None:
                    self._start()
                busy = [slot for slot in self.slots if slot.worker and slot.worker.task is not None]
                if not busy and (self.deadline is not None or not self.todo):
                    return
                self._listen()
        finally:
            self._dismiss()

    # Stopping

    def _mind_signals(self) -> None:
        if self.signals.asked and self.deadline is None:
            self.deadline = time.monotonic() + self.grace
            busy = 0
            for slot in self.slots:
                if slot.worker and slot.worker.task is None:
                    slot.worker.kill()
                    slot.worker.bury()
                    slot.worker = None
                elif slot.worker:
                    busy += 1
                    with contextlib.suppress(OSError):
                        slot.worker.connection.send_bytes(b"")
            self.listener.stopping(
                f"{self.signals.asked}: {busy} runs save their state (at most {self.grace:g} s; "
                "Ctrl-C again ends them at once)"
            )
        if self.deadline is not None and (self.signals.urgent or time.monotonic() >= self.deadline):
            for slot in self.slots:
                if slot.worker and not slot.worker.killed:
                    slot.worker.kill()

    def _dismiss(self) -> None:
        """Let all workers go. After an error of ours some still have a task, which they may save."""
        left = [slot.worker for slot in self.slots if slot.worker]
        seconds = max([EXIT_SECONDS, *(self.grace for worker in left if worker.task is not None)])
        for worker in left:
            if not worker.ready:
                worker.kill()
            worker.connection.close()
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and not self.signals.urgent:
            if all(worker.process.poll() is not None for worker in left):
                break
            time.sleep(0.01)
        for worker in left:
            if worker.process.poll() is None:
                worker.kill()
            worker.bury()
        for slot in self.slots:
            slot.worker = None

    # Starting

    def _start(self) -> None:
        """Start workers while there are more tasks than workers to take them."""
        wanted = len(self.todo) - sum(1 for slot in self.slots if slot.worker and slot.worker.task is None)
        for slot in self.slots:
            if wanted > 0 and slot.worker is None and slot.failures < START_ATTEMPTS:
                try:
                    slot.worker = _Worker(self.work, self.threads, slot.device, self.grace)
                    wanted -= 1
                except OSError as error:
                    self._start_failed(slot, str(error), "")

    def _start_failed(self, slot: _Slot, how: str, output: str) -> None:
        slot.failures += 1
        self.failures += 1
        last_words = f" Its last words:\n{output}" if output else " It left no word."
        if slot.failures == START_ATTEMPTS:
            log.warning(
                "a worker died %d times before its first task: %s.%s", START_ATTEMPTS, how, last_words
            )
        if self.failures >= START_ATTEMPTS and not any(
            other.worker and other.worker.ready for other in self.slots
        ):
            raise LaunchError(
                f"No worker can be started: {self.failures} in a row died before their first task; the last one: "
                f"{how}.{last_words}"
            )

    def _give(self, slot: _Slot, worker: _Worker) -> None:
        """Give the next task to a free worker."""
        index = self.todo[0]
        task = self.tasks[index]
        content = pickle.dumps(task.payload)
        worker.trim(0)
        try:
            worker.connection.send_bytes(content)
        except OSError:
            self._reap(slot, worker)
            return
        self.todo.popleft()
        worker.task = index
        worker.served += 1
        worker.began = time.perf_counter()
        worker.relay = _Relay(self.listener, task.key)
        self.listener.task_started(task.key)

    # Listening

    def _listen(self) -> None:
        """Wait until a worker says something or dies, or a signal comes; act on it."""
        by_connection: dict[Any, _Slot] = {slot.worker.connection: slot for slot in self.slots if slot.worker}
        seconds = LOOK_SECONDS
        if self.deadline is not None:
            seconds = min(seconds, max(0.01, self.deadline - time.monotonic()))
        sources: list[Any] = [*by_connection, self.signals]
        for source in wait(sources, seconds):
            if source is self.signals:
                self.signals.drain()
            else:
                self._receive(by_connection[source])
        if time.monotonic() - self.looked >= LOOK_SECONDS:
            self.looked = time.monotonic()
            self._look()

    def _look(self) -> None:
        for slot in self.slots:
            worker = slot.worker
            if worker:
                worker.trim(OUTPUT_LIMIT)
                if worker.process.poll() is not None and not worker.connection.poll():
                    self._reap(slot, worker)

    def _receive(self, slot: _Slot) -> None:
        worker = slot.worker
        assert worker is not None
        try:
            kind, *content = worker.connection.recv()
        except (EOFError, OSError):
            self._reap(slot, worker)
            return
        if kind == "ready":
            worker.ready = True
        else:
            slot.failures = self.failures = 0
        if kind == "progress" and worker.relay:
            worker.relay((content[0], content[1], content[2]))
        elif kind == "ended":
            status, message, seconds, seen, worker.leaving = content
            if worker.relay:
                worker.relay.last(seen)
            self._end(worker, status, message, seconds)
        if worker.free() and self.todo and not self.signals.asked:
            self._give(slot, worker)

    def _end(self, worker: _Worker, status: Ending, message: str, seconds: float) -> None:
        assert worker.task is not None
        outcome = Outcome(self.tasks[worker.task].key, status, message, seconds)
        self.outcomes[worker.task] = outcome
        worker.task = None
        self.listener.task_ended(outcome)

    def _reap(self, slot: _Slot, worker: _Worker) -> None:
        """A worker has died: the task it had ends with it, and its place is free."""
        how, output = worker.bury()
        slot.worker = None
        if worker.task is not None:
            slot.failures = self.failures = 0
            seconds = time.perf_counter() - worker.began
            if worker.killed:
                why = "by a second Ctrl-C" if self.signals.urgent else f"after {self.grace:g} s"
                self._end(
                    worker, "interrupted", f"ended by force {why}, before it had saved its state", seconds
                )
            else:
                self._end(worker, "crashed", f"its worker died: {how}\n{output}".rstrip(), seconds)
        elif not worker.served:
            self._start_failed(slot, how, output)

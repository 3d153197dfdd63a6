"""Worker processes of this machine: started, given tasks one by one, replaced when they die.

Each worker is a new interpreter with one connection and shares nothing else, so a worker that dies leaves no lock or
queue in a bad state. Workers are started as commands instead of through multiprocessing.Process. That would run the
main module of the caller again in each, could not give each its own environment before its first import, and would
print the output of a dying worker on the terminal.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import pickle
import signal
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing import Pipe
from multiprocessing.connection import wait
from typing import Any

from benchmark.launch.tasks import Listener, Outcome, Rounds, StopRequest, Task
from benchmark.launch.worker import serve
from benchmark.runs.status import RunState
from benchmark.runs.threads import THREAD_VARIABLES

log = logging.getLogger(__name__)

START_ATTEMPTS = 3
"""Workers that may die before their first task, in a row, before no more are started."""

EXIT_SECONDS = 5.0
"""Time that a worker without a task has to exit by itself."""

POLL_SECONDS = 1.0
"""A worker that died closes its connection. Its process is polled this often as well: a child may keep it open."""

OUTPUT_LIMIT = 1 << 20
"""Bytes of a worker's output that are kept. Only the end of it is ever shown."""

# One line, because `ps` shows it. All processes of a batch job get SIGUSR2, which ends those that do not handle it.
_BOOT = (
    "import signal, sys; signal.signal(signal.SIGUSR2, signal.SIG_IGN); "
    "from multiprocessing.connection import Connection; connection = Connection(int(sys.argv[1])); "
    "sys.path[:], *arguments = connection.recv(); "
    f"from {serve.__module__} import {serve.__name__}; {serve.__name__}(connection, *arguments)"
)


class LaunchError(RuntimeError):
    """No worker can be started. The message ends with the last output of the last one."""


class Worker:
    """One process, the connection to it, and its current task."""

    def __init__(self, work: str, threads: int, device: str | None, grace: float) -> None:
        """Start the process. Raises OSError if the system refuses."""
        self.ready = self.leaving = self.killed = self.served = False
        self.task: int | None = None
        self.began = 0.0
        environment = os.environ | dict.fromkeys(THREAD_VARIABLES, str(threads))
        if device is not None:
            environment["CUDA_VISIBLE_DEVICES"] = device
        # A file instead of a pipe: a worker whose launcher has died can still write to it.
        self.output = tempfile.TemporaryFile()  # noqa: SIM115 - closed in `reap`
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
        with contextlib.suppress(OSError):  # The process has died already, which shows when it is polled.
            self.connection.send(([entry or os.getcwd() for entry in sys.path], work, threads, grace))

    @property
    def free(self) -> bool:
        """Whether it can be given a task."""
        return self.ready and self.task is None and not self.leaving

    def kill(self) -> None:
        """End it by force."""
        self.killed = True
        self.process.kill()

    def trim(self, limit: int) -> None:
        """Drop its output if it has more than ``limit`` bytes, so that a task that prints does not fill the disk."""
        if os.fstat(self.output.fileno()).st_size > limit:
            os.truncate(self.output.fileno(), 0)

    def reap(self) -> tuple[str, str]:
        """Wait for the end of the process: (how it ended, the last lines of its output)."""
        self.connection.close()
        try:
            code = self.process.wait(EXIT_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            code = self.process.wait()
        size = os.fstat(self.output.fileno()).st_size
        tail = os.pread(self.output.fileno(), 8192, max(0, size - 8192)).decode(errors="replace")
        self.output.close()
        return _describe_exit(code), "\n".join(tail.strip().splitlines()[-25:])


def _describe_exit(code: int) -> str:
    if code >= 0:
        return f"exit code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    return f"killed by {name}" + (" (out of memory?)" if -code == signal.SIGKILL else "")


@dataclass(eq=False)
class Slot:
    """A place for a worker: its device, the worker, and how many in a row died there before a task."""

    device: str | None
    worker: Worker | None = None
    failures: int = 0


class Pool:
    """Gives tasks to workers one by one, replaces workers that die, and stops when asked."""

    def __init__(
        self,
        tasks: Sequence[Task],
        outcomes: dict[int, Outcome],
        work: str,
        devices: Sequence[str | None],
        threads: int,
        grace: float,
        listener: Listener,
        stop: StopRequest,
    ) -> None:
        """As `benchmark.launch.local.launch`; ``outcomes`` is filled, ``devices`` has one entry per worker."""
        self.tasks, self.outcomes, self.work = tasks, outcomes, work
        self.slots = [Slot(device) for device in devices]
        self.threads, self.grace = threads, grace
        self.listener, self.stop = listener, stop
        self.todo = deque(range(len(tasks)))
        self.failures = 0
        self.deadline: float | None = None
        self.polled_at = 0.0

    def run(self) -> None:
        """Return when every task has ended, or after a request to stop, when those have ended that had begun."""
        try:
            while True:
                self._check_stop()
                if self.deadline is None:
                    self._start_workers()
                busy = any(worker.task is not None for worker in self._workers())
                if not busy and (self.deadline is not None or not self.todo):
                    return
                self._wait()
        finally:
            self._dismiss()

    def _workers(self) -> list[Worker]:
        return [slot.worker for slot in self.slots if slot.worker]

    # Stopping

    def _check_stop(self) -> None:
        if self.stop.reason and self.deadline is None:
            self._begin_to_stop()
        if self.deadline is not None and (self.stop.urgent or time.monotonic() >= self.deadline):
            for worker in self._workers():
                worker.kill()

    def _begin_to_stop(self) -> None:
        """Ask workers that have a task to save its state; end the others."""
        self.deadline = time.monotonic() + self.grace
        for slot in self.slots:
            if slot.worker and slot.worker.task is None:
                slot.worker.kill()
                slot.worker.reap()
                slot.worker = None
            elif slot.worker:
                with contextlib.suppress(OSError):
                    slot.worker.connection.send_bytes(b"")
        self.listener.stopping(
            f"{self.stop.reason}: {len(self._workers())} runs save their state (at most {self.grace:g} s; "
            "Ctrl-C again ends them at once)"
        )

    def _dismiss(self) -> None:
        """End all workers. After an error of ours some still have a task, and may save its state."""
        workers = self._workers()
        seconds = max([EXIT_SECONDS, *(self.grace for worker in workers if worker.task is not None)])
        for worker in workers:
            if not worker.ready:
                worker.kill()
            worker.connection.close()
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and not self.stop.urgent:
            if all(worker.process.poll() is not None for worker in workers):
                break
            time.sleep(0.01)
        for worker in workers:
            if worker.process.poll() is None:
                worker.kill()
            worker.reap()
        for slot in self.slots:
            slot.worker = None

    # Starting

    def _start_workers(self) -> None:
        """Start workers while there are more tasks than workers to take them."""
        wanted = len(self.todo) - sum(worker.task is None for worker in self._workers())
        for slot in self.slots:
            if wanted > 0 and slot.worker is None and slot.failures < START_ATTEMPTS:
                try:
                    slot.worker = Worker(self.work, self.threads, slot.device, self.grace)
                    wanted -= 1
                except OSError as error:
                    self._start_failed(slot, str(error), "")

    def _start_failed(self, slot: Slot, how: str, output: str) -> None:
        """Count a worker that died before its first task. Raises `LaunchError` if no worker can be started."""
        slot.failures += 1
        self.failures += 1
        said = f" Its last output:\n{output}" if output else " It printed nothing."
        if slot.failures == START_ATTEMPTS:
            log.warning("a worker died %d times before its first task: %s.%s", START_ATTEMPTS, how, said)
        if self.failures >= START_ATTEMPTS and not any(worker.ready for worker in self._workers()):
            raise LaunchError(
                f"No worker can be started: {self.failures} in a row died before their first task; the last one: "
                f"{how}.{said}"
            )

    def _give_task(self, slot: Slot, worker: Worker) -> None:
        index = self.todo[0]
        content = pickle.dumps(self.tasks[index].payload)
        worker.trim(0)
        try:
            worker.connection.send_bytes(content)
        except OSError:
            self._reap(slot, worker)
            return
        self.todo.popleft()
        worker.task, worker.served, worker.began = index, True, time.perf_counter()
        self.listener.task_started(self.tasks[index].key)

    # Receiving

    def _wait(self) -> None:
        """Wait until a worker sends something or dies, or a stop is requested, and act on it."""
        slots: dict[Any, Slot] = {slot.worker.connection: slot for slot in self.slots if slot.worker}
        seconds = POLL_SECONDS
        if self.deadline is not None:
            seconds = min(seconds, max(0.01, self.deadline - time.monotonic()))
        sources: list[Any] = [*slots, self.stop]
        for source in wait(sources, seconds):
            if source is self.stop:
                self.stop.acknowledge()
            else:
                self._receive(slots[source])
        if time.monotonic() - self.polled_at >= POLL_SECONDS:
            self.polled_at = time.monotonic()
            self._poll()

    def _poll(self) -> None:
        for slot in self.slots:
            worker = slot.worker
            if worker:
                worker.trim(OUTPUT_LIMIT)
                if worker.process.poll() is not None and not worker.connection.poll():
                    self._reap(slot, worker)

    def _receive(self, slot: Slot) -> None:
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
        if kind == "progress" and worker.task is not None:
            self.listener.progress(self.tasks[worker.task].key, Rounds(*content))
        elif kind == "ended" and worker.task is not None:
            state, message, seconds, rounds, worker.leaving = content
            if rounds is not None:
                self.listener.progress(self.tasks[worker.task].key, rounds)
            self._end_task(worker, state, message, seconds)
        if worker.free and self.todo and not self.stop.reason:
            self._give_task(slot, worker)

    def _end_task(self, worker: Worker, state: RunState, message: str, seconds: float) -> None:
        assert worker.task is not None
        outcome = Outcome(self.tasks[worker.task].key, state, message, seconds)
        self.outcomes[worker.task] = outcome
        worker.task = None
        self.listener.task_ended(outcome)

    def _reap(self, slot: Slot, worker: Worker) -> None:
        """End the task of a worker that died, and free its place."""
        how, output = worker.reap()
        slot.worker = None
        if worker.task is None:
            if not worker.served:
                self._start_failed(slot, how, output)
            return
        slot.failures = self.failures = 0
        state, message = RunState.FAILED, f"its worker process died: {how}\n{output}".rstrip()
        if worker.killed:
            why = "by a second Ctrl-C" if self.stop.urgent else f"after {self.grace:g} s"
            state, message = RunState.INTERRUPTED, f"ended by force {why}, before it saved its state"
        self._end_task(worker, state, message, time.perf_counter() - worker.began)

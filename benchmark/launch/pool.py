"""Worker processes of this machine: started, given tasks one by one, replaced when they die.

Each worker is a new interpreter with one connection and shares nothing else, so a worker that dies leaves no lock or
queue in a bad state. Workers are started as commands instead of through multiprocessing.Process. That would run the
main module of the caller again in each, could not give each its own environment before its first import, and would
print the output of a dying worker on the terminal.
"""

import contextlib
import logging
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from multiprocessing import Pipe
from multiprocessing.connection import wait
from typing import Any

from benchmark.launch.settings import LocalSettings
from benchmark.launch.tasks import WORKER_DIED, Listener, Outcome, StopRequest, Task
from benchmark.launch.worker import serve
from benchmark.runs.status import RunState
from benchmark.system import FILES_PER_WORKER, GPU_MEMORY, NO_MEMORY, OPEN_FILES, explain, require_open_files

log = logging.getLogger(__name__)

START_ATTEMPTS = 3
"""Workers that may die before their first task, in a row, before no more are started."""

EXIT_SECONDS = 5.0
"""Time that a worker without a task has to exit by itself."""

WAIT_SECONDS = 0.2
"""The longest wait for messages of workers, after which a request to stop is noticed."""

POLL_SECONDS = 1.0
"""A worker that died closes its connection. Its process is polled this often as well: a child may keep it open."""

THREAD_VARIABLES = (
    "OMP_NUM_THREADS MKL_NUM_THREADS OPENBLAS_NUM_THREADS NUMEXPR_NUM_THREADS VECLIB_MAXIMUM_THREADS".split()
)
"""Environment variables that numerical libraries read when they are imported."""

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

    def __init__(
        self, place: int, work: str, settings: LocalSettings, device: str | None, service: Mapping[str, str]
    ) -> None:
        """Start the process, with ``service`` in its environment. Raises OSError if the system refuses."""
        self.place = place
        self.ready = False
        self.task: int | None = None
        self.began = 0.0
        environment = os.environ | dict.fromkeys(THREAD_VARIABLES, str(settings.threads))
        if device is not None:
            environment["CUDA_VISIBLE_DEVICES"] = device
        if settings.gpu_gb_per_run is not None:
            environment[GPU_MEMORY] = str(settings.gpu_gb_per_run)
        environment |= service
        # A file instead of a pipe: a worker whose launcher has died can still write to it.
        self.output = tempfile.TemporaryFile()  # noqa: SIM115 - closed in `reap`
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
            self.connection.send(([entry or os.getcwd() for entry in sys.path], work, settings.grace))

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
    names = {number.value: number.name for number in signal.Signals}
    how = f"killed by {names.get(-code, f'signal {-code}')}"
    return f"{how}, probably by the system: {NO_MEMORY}" if -code == signal.SIGKILL else how


class Pool:
    """Gives tasks to workers one by one, replaces workers that die, and stops when asked."""

    def __init__(
        self,
        tasks: Sequence[Task],
        work: str,
        devices: Sequence[str | None],
        settings: LocalSettings,
        listener: Listener,
        stop: StopRequest,
        services: Mapping[str | None, Mapping[str, str]],
    ) -> None:
        """As `benchmark.launch.local.launch`; ``devices`` has one entry per worker, ``services`` is from `mps_of`."""
        self.tasks, self.work, self.devices, self.services = tasks, work, devices, services
        self.settings = settings
        self.grace, self.listener, self.stop = settings.grace, listener, stop
        self.outcomes: dict[int, Outcome] = {}
        self.todo = deque(range(len(tasks)))
        self.workers: dict[int, Worker] = {}
        # Place of a worker -> workers in a row that died there without a task.
        self.failures: Counter[int] = Counter()
        self.deadline: float | None = None
        self.polled_at = 0.0

    def run(self) -> list[Outcome]:
        """Return when every task has ended, or after a request to stop, when those have ended that had begun."""
        require_open_files(OPEN_FILES + FILES_PER_WORKER * len(self.devices))
        try:
            while True:
                self._check_stop()
                if self.deadline is None:
                    self._start_workers()
                if not self._busy() and (self.deadline is not None or not self.todo):
                    return [self.outcomes[index] for index in sorted(self.outcomes)]
                self._wait()
        finally:
            self._dismiss()

    def _busy(self) -> list[Worker]:
        return [worker for worker in self.workers.values() if worker.task is not None]

    # Stopping

    def _check_stop(self) -> None:
        if self.stop.reason and self.deadline is None:
            self.deadline = time.monotonic() + self.grace
            for worker in self._busy():
                worker.process.terminate()
            self.listener.stopping(
                f"{self.stop.reason}: {len(self._busy())} runs save their state (at most {self.grace:g} s; "
                "Ctrl-C again ends them at once)"
            )
        if self._is_over():
            for worker in self._busy():
                worker.process.kill()

    def _is_over(self) -> bool:
        """Whether tasks have no more time to save their state."""
        return self.deadline is not None and (self.stop.urgent or time.monotonic() >= self.deadline)

    def _dismiss(self) -> None:
        """End all workers. After an error of ours some still have a task, and may save its state."""
        workers = self.workers.values()
        deadline = time.monotonic() + max(EXIT_SECONDS, self.grace if self._busy() else 0.0)
        for worker in workers:
            worker.connection.close()
            if not worker.ready:
                worker.process.kill()
            elif worker.task is not None:
                worker.process.terminate()
        while any(worker.process.poll() is None for worker in workers):
            if time.monotonic() >= deadline or self.stop.urgent:
                break
            time.sleep(0.01)
        for worker in workers:
            worker.process.kill()
            worker.reap()

    # Starting

    def _start_workers(self) -> None:
        """Start workers while there are more tasks than workers to take them."""
        wanted = len(self.todo) - (len(self.workers) - len(self._busy()))
        for place, device in enumerate(self.devices):
            if wanted > 0 and place not in self.workers and self.failures[place] < START_ATTEMPTS:
                try:
                    service = self.services.get(device, {})
                    self.workers[place] = Worker(place, self.work, self.settings, device, service)
                    wanted -= 1
                except OSError as error:
                    self._start_failed(place, explain(error) or str(error), "")

    def _start_failed(self, place: int, how: str, output: str) -> None:
        """Count a worker that died without a task. Raises `LaunchError` if no worker can be started."""
        self.failures[place] += 1
        number = self.failures.total()
        said = f" Its last output:\n{output}" if output else " It printed nothing."
        if number >= START_ATTEMPTS and not any(worker.ready for worker in self.workers.values()):
            raise LaunchError(
                f"No worker can be started: {number} in a row died before their first task; the last one: {how}.{said}"
            )
        if self.failures[place] == START_ATTEMPTS:
            log.warning("a worker died %d times before its first task: %s.%s", START_ATTEMPTS, how, said)

    def _give_task(self, worker: Worker) -> None:
        task = self.tasks[self.todo[0]]
        try:
            worker.connection.send(task)
        except OSError:
            self._reap(worker)
            return
        worker.task, worker.began = self.todo.popleft(), time.perf_counter()
        self.listener.task_started(task.key)

    # Receiving

    def _wait(self) -> None:
        """Wait until a worker sends something or dies, and act on it."""
        workers: dict[Any, Worker] = {worker.connection: worker for worker in self.workers.values()}
        for connection in wait(list(workers), WAIT_SECONDS):
            self._receive(workers[connection])
        if time.monotonic() - self.polled_at >= POLL_SECONDS:
            self.polled_at = time.monotonic()
            for worker in list(self.workers.values()):
                if worker.process.poll() is not None and not worker.connection.poll():
                    self._reap(worker)
        self.listener.look()

    def _receive(self, worker: Worker) -> None:
        try:
            outcome = worker.connection.recv()
        except (EOFError, OSError):
            self._reap(worker)
            return
        if outcome is not None:
            self._end_task(worker, outcome)
            return
        worker.ready = True
        if self.todo and not self.stop.reason:
            self._give_task(worker)

    def _end_task(self, worker: Worker, outcome: Outcome) -> None:
        assert worker.task is not None
        self.outcomes[worker.task], worker.task = outcome, None
        self.failures[worker.place] = 0
        self.listener.task_ended(outcome)

    def _reap(self, worker: Worker) -> None:
        """Free the place of a worker that has ended. If it had a task, that has failed."""
        how, output = worker.reap()
        del self.workers[worker.place]
        if worker.task is None:
            if not (worker.ready or self.stop.reason):
                self._start_failed(worker.place, how, output)
            return
        key, seconds = self.tasks[worker.task].key, time.perf_counter() - worker.began
        if self._is_over():
            why = "by a second Ctrl-C" if self.stop.urgent else f"after {self.grace:g} s"
            message = f"ended by force {why}, before it saved its state"
            outcome = Outcome(key, RunState.INTERRUPTED, message, seconds)
        else:
            message = f"its worker process died: {how}\n{output}".rstrip()
            outcome = Outcome(key, RunState.FAILED, message, seconds, WORKER_DIED)
        self._end_task(worker, outcome)

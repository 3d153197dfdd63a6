"""The body of a batch job: several runs, some side by side, that save their state when the scheduler wants its place.

submitit calls a `Pack` on the node, and its :meth:`Pack.checkpoint` when SIGUSR2 says that time is up or that somebody
else is to have the place; the job is then queued again with what that returns. A job that is killed without a word is
queued again as it was. Both ways its runs go on from their own checkpoints, and those that have ended are not touched:
what a job has done stands in the folders of its runs, and nothing about it is kept here.
"""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from benchmark.runs.launch import Listener, Outcome, Stop, Task, launch
from benchmark.runs.lease import BEAT_SECONDS, STALE_SECONDS

WAIT_SECONDS = STALE_SECONDS + 2 * BEAT_SECONDS
"""A run that another process holds is tried again for so long: the one before may be dead, and not yet known to be."""


@dataclass
class Pack:
    """Runs that share a job.

    Attributes:
        tasks: the runs, in the order in which they are begun.
        work: ``module:function`` that carries one out.
        workers: how many side by side; null for one per GPU or core of the job.
        threads: threads of each.
        grace: seconds that runs have to save their state.
        retries: how often a run that failed by itself, or whose worker died, is tried again in this job.
    """

    tasks: tuple[Task, ...]
    work: str
    workers: int | None = None
    threads: int = 1
    grace: float = 60.0
    retries: int = 1
    _stop: Stop | None = field(default=None, repr=False, compare=False)
    _thread: threading.Thread | None = field(default=None, repr=False, compare=False)

    def __getstate__(self) -> dict[str, Any]:
        """Without what belongs to the process that is at work."""
        return self.__dict__ | {"_stop": None, "_thread": None}

    def __call__(self) -> dict[str, int]:
        """Carry out what has not ended; how many runs ended in which way. RuntimeError if no worker can be started."""
        outcomes: dict[str, Outcome] = {}
        errors: list[BaseException] = []
        with contextlib.closing(Stop()) as stop:
            # The runs are watched by a thread, so that the main one is free for signals.
            thread = threading.Thread(target=self._watch, args=(stop, outcomes, errors))
            self._stop, self._thread = stop, thread
            before = signal.signal(signal.SIGTERM, self._terminated)
            thread.start()
            try:
                while thread.is_alive():
                    # Short: a signal that another thread of the process receives is looked at when this wait ends.
                    thread.join(0.1)
            finally:
                signal.signal(signal.SIGTERM, before)
                self._stop = self._thread = None  # a signal from here on finds nothing to stop
        if errors:
            raise errors[0]
        counts: dict[str, int] = {}
        for task in self.tasks:
            state = outcomes[task.key].status if task.key in outcomes else "interrupted"
            counts[state] = counts.get(state, 0) + 1
        return counts

    def checkpoint(self) -> Any:
        """Let all runs save their state; the submission that goes on from there."""
        from submitit.helpers import DelayedSubmission

        if self._stop is not None and self._thread is not None:
            self._stop.ask("SIGUSR2")
            self._thread.join(self.grace + 10)
        return DelayedSubmission(self)

    def _terminated(self, *_: object) -> None:
        if self._stop is not None:
            self._stop.ask("SIGTERM")

    def _watch(self, stop: Stop, outcomes: dict[str, Outcome], errors: list[BaseException]) -> None:
        try:
            self._carry_out(stop, outcomes)
        except BaseException as error:  # noqa: BLE001 - the main thread raises it
            errors.append(error)

    def _carry_out(self, stop: Stop, outcomes: dict[str, Outcome]) -> None:
        left, tries = list(self.tasks), dict.fromkeys((task.key for task in self.tasks), 0)
        waited = 0.0
        while left and not stop.asked:
            found = {outcome.key: outcome for outcome in self._launch(left, stop)}
            outcomes |= found
            for key, outcome in found.items():
                tries[key] += outcome.status in ("failed", "crashed")
            left = [task for task in left if self._again(found.get(task.key), tries[task.key], waited)]
            if left and all(found[task.key].status == "busy" for task in left if task.key in found):
                began = time.monotonic()
                while not stop.asked and time.monotonic() - began < BEAT_SECONDS:
                    time.sleep(0.2)
                waited += BEAT_SECONDS

    def _again(self, outcome: Outcome | None, tries: int, waited: float) -> bool:
        """Whether a run is to be tried once more; one without an outcome was not begun."""
        if outcome is None or outcome.status == "interrupted":
            return True
        if outcome.status == "busy":
            return waited < WAIT_SECONDS
        return outcome.status in ("failed", "crashed") and tries <= self.retries

    def _launch(self, tasks: Sequence[Task], stop: Stop) -> list[Outcome]:
        return launch(
            tasks,
            self.work,
            kind="local",
            workers=self.workers,
            threads=self.threads,
            grace=self.grace,
            listener=Log(),
            stop=stop,
        )


class Log(Listener):
    """One line for each run that begins or ends: the log of a batch job."""

    def started(self, tasks: Sequence[Task]) -> None:
        """Nothing has happened yet."""

    def task_started(self, key: str) -> None:
        """Say so."""
        self._say(f"begins      {key}")

    def progress(self, key: str, round: int, rounds: int) -> None:
        """Stands in the run's folder."""

    def task_ended(self, outcome: Outcome) -> None:
        """Say how, with the whole message of what went wrong."""
        self._say(f"{outcome.status:<11} {outcome.key} ({outcome.seconds:.0f} s) {outcome.message}".rstrip())

    def stopping(self, message: str) -> None:
        """Say why."""
        self._say(f"stopping    {message}")

    def finished(self, outcomes: Sequence[Outcome]) -> None:
        """All has been said."""

    def _say(self, line: str) -> None:
        print(f"{time.strftime('%F %T')} {line}", flush=True)

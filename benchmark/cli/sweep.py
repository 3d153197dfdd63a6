"""Sweeps of ``run -m``: plain Hydra, whose jobs leave notes of what came of them, and the report made of these.

Hydra hands the combinations to a launcher: one after the other in this process (``basic``), or as jobs of their own
(``submitit_local``, ``submitit_slurm``). What a run has come to stands in its own folder, wherever it was carried out.
A note in the sweep's folder says which run a job carries out and, when it has ended, how; a job that is gone and whose
note does not say so has died.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import signal
import socket
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf

from benchmark.cli.signals import Requeue, in_submitit_job, stop_on_signals
from benchmark.cli.tracking import tags_of
from benchmark.config.compose import resolve
from benchmark.config.schema import RunConfig
from benchmark.errors import ConfigError, UserError
from benchmark.experiments.plan import prepare_data
from benchmark.launch.slurm.batch_job import WAIT_SECONDS
from benchmark.paths import ROOT
from benchmark.runs.files import storage_error, write_atomically
from benchmark.runs.status import RunState
from benchmark.runs.store import Results, read_json
from benchmark.runs.threads import THREAD_VARIABLES
from benchmark.tracking.settings import TrackedRun, Tracker, TrackingSettings, tracking

CODES = {"done": 0, "diverged": 0, "interrupted": 130, "refused": 2}
"""Exit codes of what a run can come to; 1 for all else."""

NEVER = "its job was not submitted, or ended before it began"

LATE_SECONDS = 10.0
"""So long after its job a note may appear on a network file system."""

Start = Callable[[Sequence[str], Callable[[DictConfig], None]], None]
"""``start(words, job)``: hand words to Hydra, which calls ``job`` with the configuration of each run."""


@dataclass(frozen=True)
class Note:
    """What is known of a job: the words that tell its run from the others', its run's folder, its log, how it ended."""

    words: str
    where: str = ""
    log: str = ""
    state: str = "begun"
    message: str = ""

    @property
    def code(self) -> int:
        """Exit code."""
        return CODES.get(self.state, 1)

    def __str__(self) -> str:
        """One line."""
        line = f"{self.state}: {self.where or self.words}"
        return f"{line}: {self.message}" if self.message else line


# One run -------------------------------------------------------------------------------------------------------


def carry_out(config: RunConfig, grace: float = 0.0) -> tuple[str, str]:
    """Carry out one run in this process: (state, message); `ConfigError` if another process holds it.

    A job of submitit waits for a run that is held: its holder may be the job itself before it was queued again, killed
    and not yet known to be dead. When its signal comes, the run saves its state, and the job is queued again;
    ``grace``: seconds for that. Then this function does not return.
    """
    from benchmark.runs.execute import execute

    progress = _print_progress if sys.stdout.isatty() else _silent
    deadline = time.monotonic() + (WAIT_SECONDS if in_submitit_job() else 0.0)
    with stop_on_signals() as stop, Requeue(stop, grace) as requeue:
        while True:
            state, message = execute(config, progress, stop.is_set)
            if state is not RunState.RUNNING or stop.is_set() or time.monotonic() > deadline:
                break
            time.sleep(1.0)
    if state not in ("done", "diverged", "failed"):
        requeue.go()
    if state is RunState.RUNNING:
        raise ConfigError(message)
    return state, message


def folder_of(config: RunConfig) -> str:
    """A run's folder."""
    return f"{config.paths.results}/runs/{config.key}"


def print_result(config: RunConfig, state: str, message: str) -> None:
    """Say how a run ended, and its last evaluation."""
    print(f"{state}: {folder_of(config)}" + (f" ({message})" if message else ""))
    if state not in ("done", "diverged"):
        return
    status = Results(Path(config.paths.results)).run(config.key).status()
    for split, values in (status.final if status else {}).items():
        print(f"  {split}: " + ", ".join(f"{name} {value:.4f}" for name, value in values.items()))


def _print_progress(round: int, rounds: int) -> None:
    print(f"\rround {round}/{rounds}", end="\n" if round == rounds else "", flush=True)


def _silent(round: int, rounds: int) -> None:
    return None


def plain(config: DictConfig) -> RunConfig:
    """Hydra's configuration as ours; `ConfigError` for what is not allowed."""
    node: Any = OmegaConf.to_container(config, resolve=True)
    return resolve({key: value for key, value in node.items() if key != "hydra"})


class Trackers:
    """One tracker for each results folder and settings, begun with the first run that asks for it.

    In another process it begins anew, with none.
    """

    def __init__(self) -> None:
        self._stack = contextlib.ExitStack()
        self._found: dict[str, Tracker] = {}

    def __enter__(self) -> Trackers:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> tuple[type[Trackers], tuple[()]]:
        return Trackers, ()

    def follow(self, config: DictConfig, run: RunConfig) -> None:
        """Track a run as its configuration says; `ConfigError` for settings that are not allowed."""
        node: Any = OmegaConf.to_container(config.tracking, resolve=True)
        root, settings = Path(run.paths.results), TrackingSettings.of(node)
        place = f"{root.absolute()} {settings}"
        if place not in self._found:
            self._found[place] = self._stack.enter_context(tracking(settings, root, []))
        self._found[place].follow(TrackedRun(run.key, "", tags_of(run)))

    def close(self) -> None:
        """Have everything sent, for a while."""
        self._found.clear()
        self._stack.close()


# A job ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Job:
    """What Hydra calls for each combination, in whatever process.

    Attributes:
        notes: absolute folder of the notes.
        host, pid: the process that began the sweep.
        grace: seconds in which a run has to save its state.
        trackers: of this process.
    """

    notes: Path
    host: str
    pid: int
    grace: float
    trackers: Trackers

    def __call__(self, config: DictConfig) -> None:
        """Carry out one run and leave a note of it."""
        hydra = HydraConfig.get()
        path = self.notes / f"{hydra.job.num}.json"
        note = Note(" ".join(hydra.overrides.task), log=_log())
        here = (socket.gethostname(), os.getpid()) == (self.host, self.pid)
        try:
            ended = self._carry_out(config, note, path)
        finally:
            if not here:
                self.trackers.close()
        _write(path, ended)
        if ended.state == "interrupted":
            if here:
                raise KeyboardInterrupt  # the runs after it are not begun
            if in_submitit_job():
                sys.exit(
                    1
                )  # leaves no result: SLURM may begin the job again, and the sweep then waits for it

    def _carry_out(self, config: DictConfig, note: Note, path: Path) -> Note:
        try:
            run = plain(config)
            note = replace(note, where=folder_of(run))
            _write(path, note)
            self.trackers.follow(config, run)
            state, message = carry_out(run, self.grace)
            print_result(run, state, message)
            return replace(note, state=state, message=message)
        except Exception as error:  # noqa: BLE001 - it is told, and the other runs go on
            if isinstance(error, UserError):
                print(f"error: {error}", file=sys.stderr)
                return replace(note, state="refused", message=str(error))
            traceback.print_exc()
            return replace(note, state="failed", message=f"{type(error).__name__}: {error}")


def _log() -> str:
    if not in_submitit_job():
        return ""
    from submitit import JobEnvironment

    return str(JobEnvironment().paths.stderr)


def _write(path: Path, note: Note) -> None:
    write_atomically(path, json.dumps(asdict(note)).encode())


# The sweep -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Sweep:
    """One call of ``run -m``.

    Attributes:
        words: the command line.
        settings: words that set our defaults of the launcher.
        config: the configuration of the first combination, with Hydra's node.
        combinations: the words of each run; None where a sweeper other than Hydra's own chooses them.
    """

    words: tuple[str, ...]
    settings: tuple[str, ...]
    config: DictConfig
    combinations: list[list[str]] | None

    @property
    def launcher(self) -> str:
        """Its name."""
        return str(self.config.hydra.runtime.choices["hydra/launcher"])

    @property
    def folder(self) -> Path:
        """Where the sweep keeps notes and logs."""
        return Path(self.config.hydra.sweep.dir).absolute()

    @property
    def jobs(self) -> Path:
        """Where submitit keeps its files and the jobs' logs."""
        from submitit.core.utils import JobPaths

        return JobPaths.get_first_id_independent_folder(self.config.hydra.launcher.submitit_folder)

    def carry_out(self, start: Start, compose: Callable[[Sequence[str]], DictConfig]) -> int:
        """All runs; exit code 0, 1 (a run failed, a job died), 2 (user's mistake) or 130 (stopped).

        Raises `ConfigError` for mistakes that are found before the first run is begun.
        """
        elsewhere = self.launcher.startswith("submitit_")
        planned = self._planned(compose) if elsewhere else {}
        grace = self.config.hydra.launcher.get("signal_delay_s", 30) / 2 if elsewhere else 0.0
        trackers = Trackers()
        job = Job(self.folder / "notes", socket.gethostname(), os.getpid(), grace, trackers)
        try:
            job.notes.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise storage_error(error, job.notes) from error
        if elsewhere:
            number = len(self.combinations) if self.combinations else "all"
            print(f"{number} runs as jobs of {self.launcher}; logs: {self.jobs}/", flush=True)
        # The time in the folder's name stays that of the configuration at hand.
        words = _with(self.words, f"hydra.sweep.dir={_quoted(str(self.folder))}", *self.settings)
        environment = self._environment() if elsewhere else {}
        stopped = False
        try:
            with trackers, temporarily(environment), _terminable():
                self._start(start, words, job, elsewhere)
        except KeyboardInterrupt:
            stopped = True
            if self.launcher == "submitit_local":
                self._wait(stop=True)
            elif elsewhere:
                print(
                    "left alone: jobs that were submitted go on (squeue --me lists them); give the same command when "
                    "they have ended",
                    file=sys.stderr,
                )
                return 130
        return self._report(job.notes, planned, elsewhere, stopped)

    # Before

    def _planned(self, compose: Callable[[Sequence[str]], DictConfig]) -> dict[str, str]:
        """Folder -> words of all runs, whose data are prepared: what is wrong with one of them is told here."""
        launcher = self.config.hydra.launcher
        for key in ("nodes", "tasks_per_node"):
            if launcher.get(key, 1) != 1:
                raise ConfigError(
                    f"hydra.launcher.{key}: came {launcher[key]}; a run is one process. Allowed: 1."
                )
        from benchmark.runs.execute import get_data, get_weights

        runs = {}
        for combination in self.combinations or []:
            try:
                runs[" ".join(combination)] = plain(compose(combination))
            except ValueError as error:
                if not isinstance(error, UserError):
                    raise
                raise ConfigError(f"{' '.join(combination)}: {error}") from error
        for results in {run.paths.results for run in runs.values()}:
            Results(Path(results)).open()
        prepare_data(list(runs.values()), get_data, get_weights)
        return {folder_of(run): words for words, run in runs.items()}

    def _environment(self) -> dict[str, str]:
        """For the jobs: this package, and threads as under the other launchers, which decide about the last bits."""
        threads = str(self.config.runtime.threads)
        path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
        return {"PYTHONPATH": path} | dict.fromkeys(THREAD_VARIABLES, threads)

    # Meanwhile

    def _start(self, start: Start, words: Sequence[str], job: Job, elsewhere: bool) -> None:
        if not elsewhere:
            start(words, job)
            return
        from submitit.core.utils import FailedSubmissionError, UncompletedJobError

        said = io.StringIO()
        try:
            with contextlib.redirect_stderr(said):  # submitit prints what SLURM says, and raises it too
                start(words, job)
        except (UncompletedJobError, FailedSubmissionError) as error:
            if not any(self._ids()):
                said = io.StringIO()
                raise ConfigError(
                    "SLURM takes no job with these settings (hydra.launcher.*): "
                    f"{' '.join(str(error).split())} Nothing was submitted."
                ) from error
            # A job has died; Hydra waits for no other then.
            self._wait()
        finally:
            sys.stderr.write(said.getvalue())

    def _ids(self) -> Iterator[tuple[Path, str]]:
        """(folder, number) of every job that was submitted."""
        ending = "_submitted.pkl"
        for path in sorted(self.jobs.rglob(f"*{ending}")):
            yield path.parent, path.name.removesuffix(ending)

    def _wait(self, stop: bool = False) -> None:
        """Until no job lives; local ones may be told to ``stop`` before."""
        for tell in (True, False) if stop else (False,):
            for folder, number in self._ids():
                if self.launcher == "submitit_local":
                    _wait_for_child(int(number), tell)
                else:
                    from submitit import SlurmJob

                    SlurmJob(folder, number).wait()

    # After

    def _report(self, notes: Path, planned: Mapping[str, str], elsewhere: bool, stopped: bool) -> int:
        found = self._read(notes, patient=elsewhere and not stopped)
        seen = {note.where for note in found}
        left = [
            Note(words, where, state="not begun", message=NEVER)
            for where, words in planned.items()
            if where not in seen
        ]
        count = max(len(found) + len(left), len(self.combinations or ()))
        states = Counter(note.state for note in (*found, *left))
        states["not begun"] += count - len(found) - len(left)
        if elsewhere:
            for note in found:
                if note.state == "done":
                    print(note)
        parts = ", ".join(f"{number} {state}" for state, number in states.items() if number)
        print(f"{count} run{'s' if count != 1 else ''}: {parts}", flush=True)
        for note in (*found, *left):
            if note.state != "done":
                print(note, file=sys.stderr)
        if stopped:
            print("stopped; the same command goes on where it was", file=sys.stderr)
            return 130
        return max((note.code for note in (*found, *left)), default=0)

    def _read(self, notes: Path, patient: bool) -> list[Note]:
        """All notes, in the order of the jobs; a job whose run neither ended nor goes on has died."""
        deadline = time.monotonic() + (LATE_SECONDS if patient and self.launcher == "submitit_slurm" else 0)
        while True:
            paths = sorted(notes.glob("[0-9]*.json"), key=lambda path: int(path.stem))
            found = [Note(**content) for path in paths if (content := read_json(path)) is not None]
            open_ = len(found) < len(self.combinations or ()) or any(note.state == "begun" for note in found)
            if not open_ or time.monotonic() > deadline:
                break
            time.sleep(0.5)
        return [
            replace(note, state="died", message=f"its job ended without a word; log: {note.log}")
            if note.state == "begun"
            else note
            for note in found
        ]


def _wait_for_child(pid: int, stop: bool) -> None:
    """Until a child has ended, or with ``stop`` only ask it to; another process may have its number by now."""
    with contextlib.suppress(ChildProcessError):
        alive = os.waitpid(pid, os.WNOHANG) == (0, 0)
        if alive and stop:
            os.kill(pid, signal.SIGTERM)
        elif alive:
            os.waitpid(pid, 0)


def _with(words: Sequence[str], *more: str) -> list[str]:
    """The command line with more overrides, all of them behind the flags: Hydra reads them in one piece only."""
    overrides = [word for word in words if not word.startswith("-") and ("=" in word or word.startswith("~"))]
    flags = [word for word in words if word not in overrides]
    return [*flags, *(word for word in overrides if not word.startswith("hydra.sweep.dir=")), *more]


def _quoted(value: str) -> str:
    """A value as Hydra's grammar reads it back."""
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"


@contextlib.contextmanager
def temporarily(values: Mapping[str, str]) -> Iterator[None]:
    """These environment variables for the time being."""
    before = {key: os.environ.get(key) for key in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for key, value in before.items():
            if value is None:
                os.environ.pop(key, None)
            else:
                os.environ[key] = value


@contextlib.contextmanager
def _terminable() -> Iterator[None]:
    """SIGTERM is a Ctrl-C for the time being: who waits for jobs looks after them before it ends."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)

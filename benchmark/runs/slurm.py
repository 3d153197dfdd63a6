"""Runs on a SLURM cluster: packed into tasks of job arrays, submitted through submitit, followed by their folders.

What a run has come to stands in its folder; the scheduler is only asked which tasks still wait or run. What is
submitted is noted in ``results/launcher/batches`` before, under a name that the jobs carry too: a launcher that dies in
between leaves nothing behind that the next one could not find.
"""

from __future__ import annotations

import contextlib
import json
import re
import secrets
import shutil
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

from pydantic import BaseModel, ConfigDict, Field, PositiveInt, ValidationError

from benchmark.errors import ConfigError, explained
from benchmark.runs.files import write_atomically
from benchmark.runs.launch import Task
from benchmark.runs.lease import holder_of
from benchmark.runs.pack import Pack
from benchmark.runs.progress import duration
from benchmark.runs.store import Results, Status

ROOT = Path(__file__).resolve().parents[2]

TIMEOUTS = 1000
"""How often a task may use up its time and go on: as often as its runs need."""

FILL = 0.7
"""Share of a task's time that is filled with runs, as far as their times are known."""

NO_ROOM = re.compile(r"MaxSubmit|MaxJobCount|job submit limit|submit limit", re.IGNORECASE)
"""What sbatch says where no more jobs may wait."""

AWAY = re.compile(r"Unable to contact|timed out|Zero Bytes|standby mode", re.IGNORECASE)
"""What sbatch says where the scheduler does not answer. It may have taken the job all the same."""


class SlurmSettings(BaseModel):
    """``conf/launcher/slurm.yaml``, where the meaning of each key stands."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str = "slurm"
    partition: str | None = None
    account: str | None = None
    qos: str | None = None
    constraint: str | None = None
    time: PositiveInt = 120
    gpus_per_job: int = Field(default=0, ge=0)
    cpus_per_job: PositiveInt | None = None
    mem: str | None = None
    workers: PositiveInt | None = None
    threads: PositiveInt = 1
    runs_per_job: PositiveInt | None = None
    minutes_per_run: float = Field(default=10.0, gt=0)
    max_parallel: PositiveInt = 64
    retries: int = Field(default=1, ge=0)
    grace: float = Field(default=60.0, ge=0)
    signal_delay: int = Field(default=120, ge=0)
    detach: bool = False
    poll: float = Field(default=10.0, gt=0)
    setup: tuple[str, ...] = ()
    modules: tuple[str, ...] = ()
    slurm: dict[str, Any] = {}

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> SlurmSettings:
        """`ConfigError`, naming the key, for what is not allowed."""
        try:
            settings = cls.model_validate(values)
        except ValidationError as error:
            message = explained(error.errors(), cls.model_fields, "launcher.")
            raise ConfigError(
                f"{message} Set it in conf/launcher/slurm.yaml or on the command line."
            ) from error
        if settings.signal_delay + settings.grace >= settings.time * 60:
            raise ConfigError(
                f"launcher.time: came {settings.time} minutes, of which runs have "
                f"{settings.signal_delay + settings.grace:g} s to save their state (launcher.signal_delay, "
                "launcher.grace); nothing is left for work. Raise it, or lower them."
            )
        return settings

    @property
    def side_by_side(self) -> int:
        """Runs at a time in one task."""
        return self.workers or max(1, self.gpus_per_job)


@dataclass(frozen=True)
class Batch:
    """One job array: its name, which its jobs carry too, and the runs of each task."""

    name: str
    packs: tuple[tuple[str, ...], ...]

    def write(self, folder: Path) -> None:
        """Note it down."""
        folder.mkdir(parents=True, exist_ok=True)
        write_atomically(folder / f"{self.name}.json", json.dumps(asdict(self)).encode())

    @classmethod
    def read(cls, path: Path) -> Batch:
        """From its note."""
        plain = json.loads(path.read_bytes())
        return cls(**plain | {"packs": tuple(map(tuple, plain["packs"]))})


class Full(Exception):
    """The scheduler takes no more jobs for now."""


class Away(ConfigError):
    """The scheduler does not answer; whether it has taken the job is not known."""


class Queue(Protocol):
    """What is asked of a scheduler."""

    def submit(self, name: str, packs: Sequence[Pack], parallel: int) -> None:
        """Submit an array of which so many tasks may run at a time. Raises `Full`, `Away` or `ConfigError`."""

    def living(self) -> dict[str, set[int]] | None:
        """Name of array -> indices of its tasks that wait or run; None where the scheduler does not answer."""

    def largest_array(self) -> int:
        """Most tasks of one array."""


class Slurm:
    """The real one."""

    def __init__(self, settings: SlurmSettings, folder: Path) -> None:
        """``folder`` is for submitit's files and the jobs' logs. `ConfigError` where there is no SLURM."""
        if shutil.which("sbatch") is None:
            raise ConfigError(
                "launcher: came slurm, but there is no `sbatch` on this machine. Give the command on a login node of "
                "the cluster, or set launcher=local."
            )
        self.settings, self.folder = settings, folder

    def submit(self, name: str, packs: Sequence[Pack], parallel: int) -> None:
        """As `Queue` says."""
        import submitit
        from submitit.core.utils import FailedJobError

        s = self.settings
        executor = submitit.SlurmExecutor(folder=self.folder / name, max_num_timeout=TIMEOUTS)
        given = {
            "partition": s.partition,
            "account": s.account,
            "qos": s.qos,
            "constraint": s.constraint,
            "mem": s.mem,
            "gpus_per_node": s.gpus_per_job or None,
        }
        executor.update_parameters(
            job_name=name,
            time=s.time,
            signal_delay_s=s.signal_delay,
            cpus_per_task=s.cpus_per_job or s.side_by_side * s.threads,
            array_parallelism=parallel,
            setup=[
                *(f"module load {module}" for module in s.modules),
                *s.setup,
                f'export PYTHONPATH="{ROOT}${{PYTHONPATH:+:$PYTHONPATH}}"',
            ],
            additional_parameters=dict(s.slurm),
            **{key: value for key, value in given.items() if value is not None},
        )
        try:
            with executor.batch():
                for pack in packs:
                    executor.submit(pack)
        except FailedJobError as error:
            message = " ".join(str(error).split())
            if NO_ROOM.search(message):
                raise Full(message) from error
            if AWAY.search(message):
                raise Away(
                    f"SLURM does not answer: {message} Give the same command again when it does; it submits what is "
                    "missing then."
                ) from error
            raise ConfigError(
                f"SLURM takes no job with these settings (launcher.*): {message} Nothing was submitted."
            ) from error

    def living(self) -> dict[str, set[int]] | None:
        """As `Queue` says."""
        done = subprocess.run(
            ["squeue", "--me", "-h", "-r", "-o", "%i %j"], capture_output=True, text=True, check=False
        )
        if done.returncode:
            return None
        found: dict[str, set[int]] = {}
        for line in done.stdout.splitlines():
            job, _, name = line.partition(" ")
            found.setdefault(name, set()).add(int(job.partition("_")[2] or 0))
        return found

    def largest_array(self) -> int:
        """As `Queue` says."""
        done = subprocess.run(["scontrol", "show", "config"], capture_output=True, text=True, check=False)
        match = re.search(r"^MaxArraySize\s*=\s*(\d+)", done.stdout, re.MULTILINE)
        return int(match[1]) - 1 if match and int(match[1]) > 1 else 1000


def packed(
    tasks: Sequence[Task], seconds: Callable[[Task], float], settings: SlurmSettings
) -> list[tuple[Task, ...]]:
    """Tasks of the array: consecutive runs, as many as fill the time (or ``runs_per_job``)."""
    room = FILL * settings.time * 60 * settings.side_by_side
    packs: list[list[Task]] = []
    used = 0.0
    for task in tasks:
        needed = seconds(task)
        full = (
            len(packs[-1]) >= settings.runs_per_job
            if packs and settings.runs_per_job
            else used + needed > room
        )
        if not packs or full:
            packs.append([])
            used = 0.0
        packs[-1].append(task)
        used += needed
    return [tuple(pack) for pack in packs]


class Cluster:
    """Submits what is missing, never what lives, and looks after it."""

    def __init__(self, results: Results, queue: Queue, settings: SlurmSettings, work: str) -> None:
        """``work``: ``module:function`` that carries out a run."""
        self.results, self.queue, self.settings, self.work = results, queue, settings, work
        self.notes = results.root / "launcher" / "batches"
        self._tries: Counter[str] = Counter()
        self._statuses: dict[str, Status] = {}

    # What there is

    def ended(self, key: str) -> bool:
        """Whether a run has ended; once it has, its folder is not read again."""
        if key not in self._statuses:
            folder = self.results.run(key)
            status = folder.status()
            if status is None or not status.ended or not folder.complete(status):
                return False
            self._statuses[key] = status
        return True

    def living(self) -> set[str]:
        """Runs in tasks that wait or run, whoever submitted them; of an unknown queue, all that was ever submitted."""
        names = self.queue.living()
        alive: set[str] = set()
        for path in self.notes.glob("*.json") if self.notes.exists() else ():
            if names is not None and path.stem not in names:
                continue
            batch = Batch.read(path)
            indices = range(len(batch.packs)) if names is None else names[path.stem]
            alive.update(key for index in indices if index < len(batch.packs) for key in batch.packs[index])
        return alive

    # Submitting

    def submit(self, tasks: Sequence[Task]) -> int:
        """Submit those that neither ended nor live; how many. Another launcher waits for its turn meanwhile."""
        with self.results.submission_lease():
            alive = self.living()
            todo = [
                task
                for task in tasks
                if task.key not in alive
                and not self.ended(task.key)
                and holder_of(self.results.run(task.key).path) is None
            ]
            if not todo:
                return 0
            packs = packed(todo, self._seconds(), self.settings)
            largest = self.queue.largest_array()
            arrays = [packs[start : start + largest] for start in range(0, len(packs), largest)]
            submitted = 0
            for array in arrays:
                parallel = max(1, self.settings.max_parallel // len(arrays))
                if not self._submit(array, parallel):
                    break
                submitted += sum(map(len, array))
                self._tries.update(task.key for pack in array for task in pack)
        return submitted

    def _submit(self, array: Sequence[tuple[Task, ...]], parallel: int) -> bool:
        """Submit one array; False if the scheduler takes no more for now."""
        s = self.settings
        batch = Batch(
            f"fedtables-{secrets.token_hex(4)}", tuple(tuple(task.key for task in pack) for pack in array)
        )
        batch.write(self.notes)
        jobs = [
            Pack(pack, self.work, workers=s.side_by_side, threads=s.threads, grace=s.grace, retries=s.retries)
            for pack in array
        ]
        try:
            self.queue.submit(batch.name, jobs, parallel)
        except Full:
            (self.notes / f"{batch.name}.json").unlink()
            return False
        except Away:
            raise  # the note stays: if there is such a job, it will be found by it
        except ConfigError:
            (self.notes / f"{batch.name}.json").unlink()
            raise
        return True

    def _seconds(self) -> Callable[[Task], float]:
        """Time of a run: what another seed of the same configuration took."""
        known: dict[str, float | None] = {}

        def seconds(task: Task) -> float:
            name = task.key.partition("/")[0]
            if name not in known:
                paths = sorted((self.results.root / "runs" / name).glob("seed*"))
                statuses = (self.results.run(f"{name}/{path.name}").status() for path in paths)
                known[name] = next((s.seconds for s in statuses if s is not None and s.ended), None)
            return known[name] or self.settings.minutes_per_run * 60

        return seconds

    # Looking after

    def follow(self, tasks: Sequence[Task], say: Callable[[str], None] = print) -> list[str]:
        """Until all runs have ended, or those that have not do not live any more; the keys of these."""
        lost_before: set[str] = set()
        told = ""
        began = time.monotonic()
        while True:
            open_ = [task for task in tasks if not self.ended(task.key)]
            alive = self.living()
            lost = {task.key for task in open_ if task.key not in alive and not self._held(task.key)}
            line = f"{len(tasks) - len(open_)}/{len(tasks)} runs done, {len(open_) - len(lost)} submitted"
            if line != told:
                told = line
                say(f"{line}, {duration(time.monotonic() - began)}")
            if not open_:
                return []
            # A network file system may show the end of a run later than the scheduler: lost is what is lost twice.
            again = [task for task in open_ if task.key in lost & lost_before and self._may_try(task.key)]
            if again:
                with contextlib.suppress(Away):  # it is asked again at the next look
                    self.submit(again)
            elif lost == lost_before and len(lost) == len(open_):
                return sorted(lost)
            lost_before = lost
            time.sleep(self.settings.poll)

    def _held(self, key: str) -> bool:
        return holder_of(self.results.run(key).path) is not None

    def _may_try(self, key: str) -> bool:
        """Runs that failed by themselves were tried again in their job; the others are for what killed the job."""
        status = self.results.run(key).status()
        failed = status is not None and status.state == "failed"
        return self._tries[key] == 0 or (not failed and self._tries[key] <= self.settings.retries)

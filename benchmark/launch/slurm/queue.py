"""The SLURM scheduler: what is asked of it, through submitit and its own commands, and the settings of a submission."""

from __future__ import annotations

import io
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import redirect_stderr
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from pydantic import BaseModel, ConfigDict, Field, PositiveInt, ValidationError

from benchmark.errors import ConfigError, format_validation_error
from benchmark.launch.slurm.batch_job import BatchJob
from benchmark.paths import ROOT

TIMEOUTS = 1000
"""How often a task may use up its time and go on: as often as its runs need."""

NO_ROOM = re.compile(r"MaxSubmit|MaxJobCount|job submit limit|submit limit", re.IGNORECASE)
"""What sbatch says where no more jobs may wait."""

AWAY = re.compile(r"Unable to contact|timed out|Zero Bytes|standby mode", re.IGNORECASE)
"""What sbatch says where the scheduler does not answer. It may have taken the job all the same."""

PROBE_MINUTES = 5


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
    gpu_gb_per_run: float | None = Field(default=None, gt=0)
    threads: PositiveInt = 1
    runs_per_job: PositiveInt | None = None
    minutes_per_run: float = Field(default=10.0, gt=0)
    max_parallel: PositiveInt = 64
    retries: int = Field(default=1, ge=0)
    grace: float = Field(default=60.0, ge=0)
    signal_delay: int = Field(default=120, ge=0)
    detach: bool = False
    probe: bool = True
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
            message = format_validation_error(error, cls, "launcher.")
            raise ConfigError(
                f"{message} Set it in conf/launcher/slurm.yaml or on the command line."
            ) from error
        if settings.seconds_of_work <= 0:
            raise ConfigError(
                f"launcher.time: came {settings.time} minutes, of which runs have "
                f"{settings.signal_delay + settings.grace:g} s to save their state (launcher.signal_delay, "
                "launcher.grace); nothing is left for work. Raise it, or lower them."
            )
        if settings.gpu_gb_per_run is not None and not (settings.gpus_per_job and settings.cpus_per_job):
            raise ConfigError(
                f"launcher.gpu_gb_per_run: came {settings.gpu_gb_per_run:g} with gpus_per_job={settings.gpus_per_job}, "
                f"cpus_per_job={settings.cpus_per_job}; it needs both: the GPUs to share, and a core for each run."
            )
        return settings

    @property
    def side_by_side(self) -> int:
        """Runs at a time in one task, as far as is known before it starts."""
        return self.workers or max(1, self.gpus_per_job)

    @property
    def runs_at_a_time(self) -> int | None:
        """As `side_by_side`; None where the memory of the GPUs decides on the node."""
        return None if self.workers is None and self.gpu_gb_per_run is not None else self.side_by_side

    @property
    def seconds_of_work(self) -> float:
        """Time of a task that is not kept for saving."""
        return self.time * 60 - self.signal_delay - self.grace

    @property
    def preparation(self) -> list[str]:
        """Lines of shell before the task begins."""
        return [*(f"module load {module}" for module in self.modules), *self.setup]

    @property
    def place(self) -> dict[str, Any]:
        """What chooses a node, by the names of sbatch's options."""
        given = {
            "partition": self.partition,
            "account": self.account,
            "qos": self.qos,
            "constraint": self.constraint,
            # Older clusters know GPUs by gres only; what is said of it stands for the number.
            "gpus_per_node": None if "gres" in self.slurm else self.gpus_per_job or None,
        }
        return {key: value for key, value in given.items() if value is not None}


class QueueFullError(Exception):
    """The scheduler takes no more jobs for now."""


class Away(ConfigError):
    """The scheduler does not answer; whether it has taken the job is not known."""


@dataclass(frozen=True)
class QueuedTask:
    """A task in the queue: its id, whether it runs or waits, and what for, in the scheduler's word."""

    id: str
    running: bool
    reason: str = ""


Queued = dict[str, dict[int, QueuedTask]]
"""Name of array -> index -> task that waits or runs."""


class Queue(Protocol):
    """What is asked of a scheduler."""

    def submit(self, name: str, packs: Sequence[BatchJob], parallel: int, after: str | None) -> None:
        """Submit an array of which so many tasks may run at a time, once job ``after`` has ended well.

        Raises `QueueFullError`, `Away` or `ConfigError`.
        """

    def submit_probe(self, name: str, script: str) -> str:
        """Submit a short job; its id. Raises `QueueFullError`, `Away` or `ConfigError`."""

    def tasks(self) -> Queued | None:
        """What waits or runs; None where the scheduler does not answer."""

    def cancel(self, tasks: Sequence[QueuedTask]) -> None:
        """End them; they may save their state."""

    def ending(self, job: str) -> tuple[str, int | None]:
        """State of a job that has ended, in the scheduler's word, and its exit code; ("", None) if not known."""

    def largest_array(self) -> int:
        """Most tasks of one array."""


def _ask(*words: str) -> str | None:
    """What a command of SLURM prints; None if it fails."""
    try:
        done = subprocess.run(words, capture_output=True, text=True, check=False)
    except OSError:
        return None
    return None if done.returncode else done.stdout


def queued() -> Queued | None:
    """This user's tasks that wait or run; None where there is no SLURM, or it does not answer."""
    answer = _ask("squeue", "--me", "-h", "-r", "-o", "%i|%T|%r|%j")
    if answer is None:
        return None
    found: Queued = {}
    for line in answer.splitlines():
        job, state, reason, name = line.split("|", 3)
        index = int(job.partition("_")[2] or 0)
        waits = state in ("PENDING", "REQUEUED")
        found.setdefault(name, {})[index] = QueuedTask(job, not waits, reason if waits else "")
    return found


def cancel(tasks: Sequence[QueuedTask]) -> None:
    """End tasks; a thousand at a time, since a command line has its limits."""
    for start in range(0, len(tasks), 1000):
        _ask("scancel", *(task.id for task in tasks[start : start + 1000]))


def ending(job: str) -> tuple[str, int | None]:
    """As `Queue.ending` says: by SLURM's memory of some minutes, then by its accounting, where there is one."""
    answer = _ask("scontrol", "-o", "show", "job", job) or ""
    match = re.search(r"JobState=(\w+).*? ExitCode=(\d+):", answer)
    if not match:
        answer = _ask("sacct", "-n", "-X", "-P", "-j", job, "-o", "State,ExitCode") or ""
        match = re.search(r"^(\w+)[^|]*\|(\d+):", answer)
    return (match[1], int(match[2])) if match else ("", None)


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

    def submit(self, name: str, packs: Sequence[BatchJob], parallel: int, after: str | None) -> None:
        """As `Queue` says."""
        import submitit
        from submitit.core.utils import FailedJobError

        s = self.settings
        executor = submitit.SlurmExecutor(folder=self.folder / name, max_num_timeout=TIMEOUTS)
        # Without the second, tasks would wait for ever for a probe that did not pass.
        waits = {"dependency": f"afterok:{after}", "kill_on_invalid_dep": "yes"} if after else {}
        executor.update_parameters(
            job_name=name,
            time=s.time,
            signal_delay_s=s.signal_delay,
            cpus_per_task=s.cpus_per_job or s.side_by_side * s.threads,
            array_parallelism=parallel,
            setup=[*s.preparation, f'export PYTHONPATH="{ROOT}${{PYTHONPATH:+:$PYTHONPATH}}"'],
            additional_parameters={**waits, **s.slurm},
            **s.place,
            **({"mem": s.mem} if s.mem is not None else {}),
        )
        try:
            # submitit prints what sbatch says and raises it too; once is enough.
            with redirect_stderr(io.StringIO()), executor.batch():
                for pack in packs:
                    executor.submit(pack)
        except FailedJobError as error:
            refusal = _refusal(str(error))
            if not isinstance(refusal, Away):
                shutil.rmtree(self.folder / name, ignore_errors=True)
            raise refusal from error

    def submit_probe(self, name: str, script: str) -> str:
        """As `Queue` says."""
        time = min(PROBE_MINUTES, self.settings.time)
        options = {**self.settings.place, "cpus_per_task": 1, **self.settings.slurm, "time": time}
        words = [
            f"--{key.replace('_', '-')}" + ("" if value is True else f"={value}")
            for key, value in options.items()
        ]
        done = subprocess.run(
            ["sbatch", "--parsable", f"--job-name={name}", "--output=/dev/null", *words],
            input=script,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise _refusal(done.stderr)
        return done.stdout.strip().partition(";")[0]

    def tasks(self) -> Queued | None:
        """As `Queue` says."""
        return queued()

    def cancel(self, tasks: Sequence[QueuedTask]) -> None:
        """As `Queue` says."""
        cancel(tasks)

    def ending(self, job: str) -> tuple[str, int | None]:
        """As `Queue` says."""
        return ending(job)

    def largest_array(self) -> int:
        """As `Queue` says."""
        match = re.search(
            r"^MaxArraySize\s*=\s*(\d+)", _ask("scontrol", "show", "config") or "", re.MULTILINE
        )
        return int(match[1]) - 1 if match and int(match[1]) > 1 else 1000


def _refusal(said: str) -> Exception:
    message = " ".join(said.split())
    if NO_ROOM.search(message):
        return QueueFullError(message)
    if AWAY.search(message):
        return Away(
            f"SLURM does not answer: {message} Give the same command again when it does; it submits what is missing "
            "then."
        )
    return ConfigError(
        f"SLURM takes no job with these settings (launcher.*): {message} Nothing was submitted."
    )

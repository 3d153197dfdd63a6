"""Settings of the launchers."""

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import Field, PositiveInt, model_validator

from benchmark.config.files import FileModel
from benchmark.config.schema import RunConfig
from benchmark.errors import wrong


class LocalSettings(FileModel):
    """How runs are carried out here. A file of ``conf/launcher`` states what differs from these defaults."""

    name: Literal["local", "inline"] = "local"
    workers: PositiveInt | None = Field(
        None,
        description="worker processes; null: one per GPU; without a GPU one per usable core (divided by threads)",
    )
    threads: PositiveInt = Field(
        1,
        description="cores for each worker; threads=NUMBER sets this and the torch threads of the runs",
    )
    devices: tuple[str, ...] | None = Field(
        None,
        description="devices to use: [cuda:0, cuda:2], [cuda] or [cpu]; null: every GPU, or the CPU if there is none",
    )
    grace: float = Field(30.0, ge=0, description="seconds to save the state of runs after Ctrl-C or SIGTERM")


class SlurmSettings(FileModel):
    """How runs are carried out on a cluster. A file of ``conf/launcher`` states what differs from these defaults."""

    name: str = "slurm"
    partition: str | None = Field(None, description="partition of the cluster; null: its default")
    account: str | None = Field(None, description="account that is charged; null: your default account")
    time: PositiveInt = Field(
        120,
        description="time limit of a task in minutes; unfinished runs then save their state, and the task is queued "
        "again",
    )
    gpus_per_job: Annotated[int, Field(ge=0)] | Literal["auto"] = Field(
        "auto",
        description="GPUs of a task; auto: one with preset=paper or device=cuda, none with device=cpu or other presets",
    )
    cpus_per_job: PositiveInt | None = Field(None, description="cores of a task; null: workers times threads")
    mem: str | None = Field(None, description="memory of a task, like 8GB; null: the cluster's default")
    workers: PositiveInt | None = Field(
        None, description="runs at the same time in a task; null: one per GPU, or one without GPUs"
    )
    threads: PositiveInt = Field(1, description="cores of a run; threads=NUMBER sets its torch threads")
    max_parallel: PositiveInt = Field(64, description="tasks at the same time")
    grace: float = Field(60.0, ge=0, description="seconds that runs have to save their state")
    signal_delay: int = Field(
        120, ge=0, description="seconds before the time limit at which runs are told to save their state"
    )
    detach: bool = Field(
        False,
        description="whether the command returns after the submission; the same command later follows the tasks",
    )
    poll: float = Field(10.0, gt=0, description="seconds between two looks at the queue")
    setup: tuple[str, ...] = Field(
        (), description="shell lines to run before the task: [module load cuda/12.4]"
    )
    slurm: dict[str, Any] = Field(
        {}, description="other parameters of sbatch by their long names: {qos: high, constraint: a100}"
    )

    @model_validator(mode="after")
    def _has_time_to_save(self) -> "SlurmSettings":
        if self.seconds_to_signal <= self.grace:
            saving = (self.signal_delay + self.grace) / 60
            expected = f"more than the {saving:g} minutes for saving (launcher.signal_delay, launcher.grace)"
            raise ValueError(wrong("launcher.time", self.time, expected))
        return self

    def asking_for(self, runs: Sequence[RunConfig]) -> "SlurmSettings":
        """These settings with the number of GPUs that a task of these runs asks for."""
        if self.gpus_per_job != "auto":
            return self
        wanted = self._names_gpus or any(
            run.runtime.device.startswith("cuda") or (run.preset == "paper" and run.runtime.device == "auto")
            for run in runs
        )
        return self.model_copy(update={"gpus_per_job": int(wanted)})

    @property
    def gpus(self) -> int:
        """GPUs of a task; 0 before `asking_for` has decided."""
        return 0 if self.gpus_per_job == "auto" else self.gpus_per_job

    @property
    def _names_gpus(self) -> bool:
        return any(key == "gres" or key.startswith("gpus") for key in self.slurm)

    @property
    def side_by_side(self) -> int:
        return self.workers or max(1, self.gpus)

    @property
    def on_node(self) -> LocalSettings:
        """How a task carries out its runs on its node."""
        return LocalSettings(workers=self.side_by_side, threads=self.threads, grace=self.grace)

    @property
    def seconds_to_signal(self) -> float:
        """Time from the beginning of a task to the signal that its time is up."""
        return self.time * 60 - self.signal_delay

    @property
    def request(self) -> str:
        """GPUs, cores, memory and time of a task, in words."""
        gpus = f"{self.gpus or 'no'} GPU{'s' * (self.gpus > 1)} (launcher.gpus_per_job)"
        cores = f"{self.cores} core{'s' * (self.cores > 1)} (launcher.cpus_per_job)"
        return f"{gpus}, {cores}, {self.mem or 'default'} memory (launcher.mem), {self.time} minutes (launcher.time)"

    @property
    def cores(self) -> int:
        """Cores of a task."""
        return self.cpus_per_job or self.side_by_side * self.threads

    @property
    def asked(self) -> dict[str, Any]:
        """What a task asks for, by the names of submitit's parameters."""
        given = {
            "partition": self.partition,
            "account": self.account,
            "mem": self.mem,
            # Older clusters know GPUs by gres only, which then replaces the number.
            "gpus_per_node": None if self._names_gpus else self.gpus or None,
        }
        return {key: value for key, value in given.items() if value is not None}

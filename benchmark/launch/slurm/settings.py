"""Settings of a submission to a SLURM cluster."""

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, PositiveInt

from benchmark.config.schema import declared
from benchmark.errors import ConfigError, validate, wrong
from benchmark.launch.settings import LocalSettings


class SlurmSettings(BaseModel):
    """How runs are carried out on a cluster. A file of ``conf/launcher`` states what differs from these defaults."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str = "slurm"
    partition: str | None = Field(None, description="partition of the cluster; null: its default")
    account: str | None = Field(None, description="account that is charged; null: your default account")
    qos: str | None = Field(None, description="quality of service; null: the cluster's default")
    constraint: str | None = Field(None, description="features that a node must have, as sbatch writes them")
    time: PositiveInt = Field(
        120,
        description="time limit of a task in minutes; unfinished runs then save their state, and the task is queued "
        "again",
    )
    gpus_per_job: int = Field(0, ge=0, description="GPUs of a task")
    cpus_per_job: PositiveInt | None = Field(None, description="cores of a task; null: workers times threads")
    mem: str | None = Field(None, description="memory of a task, like 8GB; null: the cluster's default")
    workers: PositiveInt | None = Field(
        None, description="runs at the same time in a task; null: one per GPU, or one without GPUs"
    )
    gpu_gb_per_run: float | None = declared(LocalSettings, "gpu_gb_per_run")
    mps: bool = declared(LocalSettings, "mps")
    threads: PositiveInt = Field(1, description="cores of a run; threads=NUMBER sets its torch threads")
    runs_per_job: PositiveInt | None = Field(
        None,
        description="runs of a task; null: as many as fit into the time, by the duration of similar runs",
    )
    minutes_per_run: float = Field(10.0, gt=0, description="minutes of a run until a similar one was timed")
    max_parallel: PositiveInt = Field(64, description="tasks at the same time")
    retries: int = Field(1, ge=0, description="how often a failed run is repeated")
    grace: float = Field(60.0, ge=0, description="seconds that runs have to save their state")
    signal_delay: int = Field(
        120, ge=0, description="seconds before the time limit at which runs are told to save their state"
    )
    detach: bool = Field(
        False,
        description="whether the command returns after the submission; the same command later follows the jobs",
    )
    probe: bool = Field(
        True,
        description="whether a short job checks a node before the first submission and after changes of the code",
    )
    poll: float = Field(10.0, gt=0, description="seconds between two looks at the queue")
    setup: tuple[str, ...] = Field((), description="shell lines to run before the task")
    modules: tuple[str, ...] = Field((), description="modules to load with `module load`")
    slurm: dict[str, Any] = Field(
        {}, description="other parameters of sbatch by their long names: {exclusive: true, reservation: mine}"
    )

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> "SlurmSettings":
        """Validate plain values. Raises `ConfigError`, which names the key."""
        settings = validate(
            cls, values, "launcher.", after=" Set it in conf/launcher/slurm.yaml or with launcher.KEY=VALUE."
        )
        for key, value in (*settings.model_dump().items(), *settings.slurm.items()):
            if not f"{key}{value}".isprintable():
                expected = "text without line breaks or other control characters"
                raise ConfigError(wrong("launcher", {key: value}, expected))
        if settings.seconds_of_work <= 0:
            saving = (settings.signal_delay + settings.grace) / 60
            expected = f"more than the {saving:g} minutes for saving (launcher.signal_delay, launcher.grace)"
            raise ConfigError(wrong("launcher.time", settings.time, expected))
        if settings.gpu_gb_per_run is not None and not (settings.gpus_per_job and settings.cpus_per_job):
            expected = "null without launcher.gpus_per_job and launcher.cpus_per_job (a core for each run)"
            raise ConfigError(wrong("launcher.gpu_gb_per_run", settings.gpu_gb_per_run, expected))
        return settings

    @property
    def side_by_side(self) -> int:
        """Runs at a time in one task, as far as is known before it starts."""
        return self.workers or max(1, self.gpus_per_job)

    @property
    def on_node(self) -> LocalSettings:
        """How a task carries out its runs on its node."""
        return LocalSettings(
            workers=self.workers if self.gpu_gb_per_run else self.side_by_side,
            gpu_gb_per_run=self.gpu_gb_per_run,
            mps=self.mps,
            threads=self.threads,
            grace=self.grace,
        )

    @property
    def seconds_to_signal(self) -> float:
        """Time from the beginning of a task to the signal that its time is up."""
        return self.time * 60 - self.signal_delay

    @property
    def seconds_of_work(self) -> float:
        """Time of a task that is not reserved for saving."""
        return self.seconds_to_signal - self.grace

    @property
    def preparation(self) -> list[str]:
        """Lines of shell before the task begins."""
        return [*(f"module load {module}" for module in self.modules), *self.setup]

    @property
    def place(self) -> dict[str, Any]:
        """What chooses a node, by the names of the options of sbatch."""
        given = {
            "partition": self.partition,
            "account": self.account,
            "qos": self.qos,
            "constraint": self.constraint,
            # Older clusters know GPUs by gres only, which then replaces the number.
            "gpus_per_node": None if "gres" in self.slurm else self.gpus_per_job or None,
        }
        return {key: value for key, value in given.items() if value is not None}

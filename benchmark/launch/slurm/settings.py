"""Settings of a submission to a SLURM cluster."""

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, PositiveInt

from benchmark.errors import ConfigError, validate, wrong


class SlurmSettings(BaseModel):
    """``conf/launcher/slurm.yaml``, which describes each key."""

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
            expected = (
                "null unless launcher.gpus_per_job and launcher.cpus_per_job are set (a core for each run)"
            )
            raise ConfigError(wrong("launcher.gpu_gb_per_run", settings.gpu_gb_per_run, expected))
        return settings

    @property
    def side_by_side(self) -> int:
        """Runs at a time in one task, as far as is known before it starts."""
        return self.workers or max(1, self.gpus_per_job)

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

"""Settings of the launchers that work on this machine."""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, PositiveInt


class LocalSettings(BaseModel):
    """How runs are carried out here. A file of ``conf/launcher`` states what differs from these defaults."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: Literal["local", "inline"] = "local"
    workers: PositiveInt | None = Field(
        None,
        description="worker processes; null: one per GPU; without a GPU one per usable core (divided by threads)",
    )
    gpu_gb_per_run: float | None = Field(
        None,
        gt=0,
        description="GB of GPU memory that a run needs, its CUDA context included; as many runs share a GPU as fit, "
        "and none gets more",
    )
    mps: bool = Field(
        False,
        description="whether CUDA's Multi-Process Service lets the runs that share a GPU compute at the same time; it "
        "is started only where several runs share a GPU, and stopped after them",
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

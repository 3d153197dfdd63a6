"""How runs are divided into the tasks of an array, by the time that they take."""

from collections.abc import Callable, Mapping, Sequence
from functools import cache

from benchmark.errors import ConfigError, wrong
from benchmark.launch.slurm.settings import SlurmSettings
from benchmark.launch.tasks import Task
from benchmark.runs.index import RunIndex

FILL = 0.7
"""Share of the time of a task that is filled with runs, as far as their times are known."""


def pack_tasks(
    tasks: Sequence[Task], seconds: Callable[[Task], float], settings: SlurmSettings
) -> list[tuple[Task, ...]]:
    """Divide runs into the tasks of an array: consecutive ones, as many as fill the time (or ``runs_per_job``)."""
    room = FILL * settings.time * 60 * settings.side_by_side
    packs: list[list[Task]] = []
    used = 0.0
    for task in tasks:
        needed = seconds(task)
        full = used + needed > room
        if packs and settings.runs_per_job:
            full = len(packs[-1]) >= settings.runs_per_job
        if not packs or full:
            packs.append([])
            used = 0.0
        packs[-1].append(task)
        used += needed
    return [tuple(pack) for pack in packs]


def known_seconds(index: RunIndex) -> Callable[[str], float | None]:
    """Seconds that a run takes, by its key, known from another seed of its configuration; None if none has ended."""

    @cache
    def of_configuration(name: str) -> float | None:
        paths = sorted((index.results.root / "runs" / name).glob("seed*"))
        statuses = (index.status(f"{name}/{path.name}") for path in paths)
        return next((s.seconds for s in statuses if s is not None and s.ended), None)

    return lambda key: of_configuration(key.partition("/")[0])


def check_time(
    settings: SlurmSettings, intervals: Mapping[str, float], seconds: Callable[[str], float | None]
) -> None:
    """Refuse a time of a task in which a run cannot get from one checkpoint to the next.

    Args:
        settings: Settings of the submission.
        intervals: Run -> share of it between two checkpoints, 0 to 1.
        seconds: Run -> its seconds, if known.

    Raises:
        ConfigError: The time is too short for the slowest known run.
    """
    needed = {key: share * (seconds(key) or 0.0) for key, share in intervals.items()}
    key = max(needed, key=lambda key: needed[key], default="")
    if key and needed[key] > settings.seconds_of_work:
        least = int((needed[key] + settings.signal_delay + settings.grace) / 60) + 1
        expected = (
            f"at least {least} minutes: another seed of {key} took {needed[key]:.0f} s from one checkpoint to the next "
            "(runtime.checkpoint_every)"
        )
        raise ConfigError(wrong("launcher.time", settings.time, expected))

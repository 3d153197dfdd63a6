"""Weights & Biases in the process of the run: one log a round, so curves are live, and the machine's metrics are W&B's.

Whatever happens to W&B is said once, and the run goes on with the same bits.
"""

import contextlib
import os
import shlex
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, Field

from benchmark import code
from benchmark.config.files import FileModel
from benchmark.config.schema import RunConfig
from benchmark.engine.records import Record
from benchmark.runs.folder import RunFolder
from benchmark.runs.result_files import read_records
from benchmark.runs.status import Result, RunState
from benchmark.runs.tracker import TRACKED, Tracker


class TrackingSettings(FileModel):
    """What is sent to W&B. A file of ``conf/tracking`` states what differs from these defaults."""

    name: Literal["off", "wandb"] = "off"
    mode: Literal["online", "offline", "disabled"] | None = Field(
        None, description="offline: files for `wandb sync --append`; null: the variable WANDB_MODE, or online"
    )
    project: str = Field("fedtables", pattern=r"^[^/\\#?%:]+$", description="W&B project of the runs")
    entity: str | None = Field(None, description="user or team; null: the one that the API key belongs to")
    tags: tuple[str, ...] = Field(
        (), description="tags beside those of tables, paper, preset, method and data"
    )
    init_timeout: float = Field(20.0, gt=0, description="seconds to wait for the server when a run is opened")

    @property
    def active(self) -> bool:
        """Whether anything is sent or written."""
        return self.name != "off" and (self.mode or os.environ.get("WANDB_MODE")) != "disabled"


class Wandb(BaseModel):
    """W&B as one process uses it, until it has ``failed``. Offline files are below ``root``, the results folder.

    ``groups``: run -> the tables that have it and their papers. The first one is its group.
    """

    settings: TrackingSettings
    root: Path
    groups: dict[str, tuple[str, ...]] = {}
    failed: bool = False

    @contextlib.contextmanager
    def trying(self) -> Iterator[None]:
        """Say once what W&B raises inside. What comes after a failure is passed over."""
        try:
            yield
        except Exception as error:  # noqa: BLE001 - whatever wandb or the server does, runs must go on
            if not self.failed:
                reason = " ".join(str(error).split()) or type(error).__name__
                later = f"python -m benchmark export wandb results={shlex.quote(str(self.root))}"
                with contextlib.suppress(OSError):
                    print(f"W&B cannot be used ({reason}). The runs go on; later: {later}", file=sys.stderr)
            self.failed = True

    def open(self, **about: Any) -> Any:
        """A W&B run, a new one or that of the same id. Raises whatever wandb raises, and once it has failed."""
        import wandb

        if self.failed:
            raise OSError("W&B has failed before")
        # What `wandb sync` needs of artifacts is to lie beside the offline files.
        os.environ.setdefault("WANDB_DATA_DIR", str(self.root / "wandb"))
        given = self.settings
        about |= {"project": given.project, "entity": given.entity, "mode": given.mode, "dir": str(self.root)}
        options = {"silent": True, "console": "off", "disable_code": True, "disable_git": True}
        options |= {"init_timeout": given.init_timeout, "finish_timeout": 60.0, "finish_timeout_raises": True}
        return wandb.init(**about, resume="allow", reinit="create_new", settings=wandb.Settings(**options))

    def begin(self, config: RunConfig, origin: dict[str, Any], made: dict[str, Any], folder: Path) -> Tracker:
        """Open a run whose attempt, or whose finished folder, is ``folder``."""
        tracked = TrackedRun(self, folder / TRACKED)
        groups, method = self.groups.get(config.key, ()), config.method.get("name", "run")
        data = config.dataset.options.get("stands_for") or config.dataset.name
        tags = [*groups, config.preset, method, data, config.selection.get("name"), *self.settings.tags]
        with self.trying():
            tracked.run = self.open(
                id=f"{config.hash}-seed{config.seed}-{code.digest(origin)[:6]}",
                name=f"{config.label} seed{config.seed}",
                group=groups[0] if groups else None,
                job_type=method,
                tags=[*dict.fromkeys(tag[:64] for tag in tags if tag)],
                config=config.model_dump(mode="json") | {"origin": origin, "made": made},
            )
            tracked.run.define_metric("*", step_metric="round")
        return tracked

    def send_finished(self, folder: RunFolder) -> bool:
        """Send what is missing of a finished run; whether anything was. `StorageError` if it is damaged."""
        result = folder.result()
        if result is None or sent_of(folder.path / TRACKED) >= result.round:
            return False
        tracked = self.begin(folder.read_config(), result.origin, result.made, folder.path)
        tracked.log(read_records(folder.path, result))
        tracked.end(result.state, result)
        return not self.failed

    def send_files(self, kind: str, preset: str, files: Sequence[Path]) -> None:
        """Send a table or a figure with all its files, as an artifact of a run of its own."""
        name = files[0].stem
        with self.trying():
            import pandas
            import wandb

            about = {"id": f"{kind}-{preset}-{name}"[:64], "name": f"{name} ({preset})", "group": name}
            run = self.open(**about, job_type=kind, tags=[preset])
            artifact = wandb.Artifact(f"{preset}-{name}", type=kind)
            for file in files:
                artifact.add_file(str(file))
            run.log_artifact(artifact)
            if kind == "table":
                cells = pandas.read_csv(next(file for file in files if file.suffix == ".csv")).astype(object)
                cells = cells.where(cells.notna(), None)
                run.log({"table": wandb.Table(dataframe=cells, allow_mixed_types=True)})
            run.finish()


class TrackedRun(Tracker):
    """One run at W&B, open until `end`. ``sent`` is the last round that W&B has, which the file ``note`` says."""

    def __init__(self, wandb: Wandb, note: Path) -> None:
        self.wandb, self.note, self.sent = wandb, note, sent_of(note)
        self.run: Any = None

    def log(self, records: Iterable[Record]) -> None:
        """Send the values of rounds, without those of single clients. A round that W&B has is not sent again."""
        rounds: dict[int, dict[str, float]] = {}
        for record in records:
            if record.split != "participation" and record.round > self.sent:
                group = "" if record.group == "all" else f"/{record.group}"
                rounds.setdefault(record.round, {})[f"{record.split}/{record.metric}{group}"] = record.value
        with self.wandb.trying():
            for number, values in sorted(rounds.items()):
                self.run.log({"round": number, **values}, step=number)
                self.sent = number
            self.note.write_text(str(self.sent))

    def end(self, state: RunState, result: Result | None = None) -> None:
        """Close it, with the ``result`` of a finished run; a run that was stopped is marked as preempted."""
        with self.wandb.trying():
            if result is not None:
                pace = result.seconds / max(1, result.round)
                self.run.summary.update({"state": str(state), "seconds_per_round": pace})
            elif state is RunState.MISSING:
                self.run.mark_preempting()
            self.run.finish(exit_code=0 if result else 1)


def sent_of(note: Path) -> int:
    """The last round that was sent; -1 if none was, or if the note is not whole."""
    with contextlib.suppress(OSError, ValueError):
        return int(note.read_text())
    return -1

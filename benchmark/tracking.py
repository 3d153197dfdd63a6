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

from pydantic import BaseModel, ConfigDict, Field

from benchmark import code
from benchmark.config.schema import RunConfig
from benchmark.engine.records import Record
from benchmark.runs.folder import RunFolder
from benchmark.runs.result_files import read_records
from benchmark.runs.status import Result, RunState
from benchmark.runs.tracker import TRACKED, Tracker

MODES = ("online", "offline", "disabled")
"""From the loudest to the quietest."""


class TrackingSettings(BaseModel):
    """What is sent to W&B. A file of ``conf/tracking`` states what differs from these defaults."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: Literal["off", "wandb"] = "off"
    mode: Literal["online", "offline", "disabled"] = Field(
        "online",
        description="offline: files for `wandb sync --append`; the variable WANDB_MODE can make it quieter only",
    )
    project: str = Field("fedtables", pattern=r"^[^/\\#?%:]+$", description="W&B project of the runs")
    entity: str | None = Field(None, description="user or team; null: the one that the API key belongs to")
    tags: tuple[str, ...] = Field(
        (), description="tags in addition to table, paper, preset, method, data set and selection"
    )
    init_timeout: float = Field(20.0, gt=0, description="seconds to wait for the server when a run is opened")

    @property
    def quietest(self) -> str:
        """The mode, or that of the variable ``WANDB_MODE`` if it is quieter."""
        asked = os.environ.get("WANDB_MODE", "")
        return max(self.mode, asked, key=lambda mode: MODES.index(mode) if mode in MODES else -1)

    @property
    def active(self) -> bool:
        """Whether anything is sent or written."""
        return self.name != "off" and self.quietest != "disabled"


class Wandb(BaseModel):
    """W&B as one process uses it.

    Attributes:
        settings: What is sent.
        root: The results folder; offline files are in its folder ``wandb``.
        groups: Run -> the tables that have it and their papers. The first one is its group.
        failed: Whether nothing more is sent.
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
                later = shlex.join(["python", "-m", "benchmark", "export", "wandb", f"results={self.root}"])
                reason = " ".join(str(error).split()) or type(error).__name__
                with contextlib.suppress(OSError):
                    print(f"W&B cannot be used ({reason}). The runs go on; later: {later}", file=sys.stderr)
            self.failed = True

    def open(self, **arguments: Any) -> Any:
        """A W&B run, a new one or that of the same id. Raises whatever wandb raises, and once it has failed."""
        import wandb

        if self.failed:
            raise OSError("W&B has failed before")
        (self.root / "wandb").mkdir(parents=True, exist_ok=True)
        for name in ("WANDB_DATA_DIR", "WANDB_CACHE_DIR"):  # `wandb sync` needs the files of artifacts
            os.environ.setdefault(name, str(self.root / "wandb" / "data"))
        options = wandb.Settings(
            silent=True, console="off", disable_code=True, disable_git=True,
            init_timeout=self.settings.init_timeout, finish_timeout=60.0, finish_timeout_raises=True,
        )  # fmt: skip
        return wandb.init(
            project=self.settings.project,
            entity=self.settings.entity,
            dir=str(self.root),
            mode=self.settings.quietest,  # type: ignore[arg-type]
            resume="allow",
            reinit="create_new",
            settings=options,
            **{key: value for key, value in arguments.items() if value},
        )

    def begin(
        self, config: RunConfig, origin: dict[str, Any], made: dict[str, Any], folder: Path
    ) -> "TrackedRun":
        """Open a run whose attempt, or whose finished folder, is ``folder``."""
        return TrackedRun(self, config, origin, made, folder / TRACKED)

    def send_finished(self, folder: RunFolder) -> bool:
        """Send what is missing of a finished run; whether anything was. `StorageError` if it is damaged."""
        result = folder.result()
        assert result is not None
        if sent_of(folder.path / TRACKED) >= result.round:
            return False
        tracked = self.begin(folder.read_config(), result.origin, result.made, folder.path)
        tracked.log(read_records(folder.path, result))
        tracked.end(result.state, result)
        return not self.failed

    def send_files(self, kind: str, preset: str, files: Sequence[Path]) -> None:
        """Send a table or a figure with all its files, as an artifact of a run of its own."""
        name = files[0].stem
        with self.trying():
            import wandb

            identity = f"{kind}-{preset}-{name}"[:64]
            run = self.open(id=identity, name=f"{name} ({preset})", group=name, job_type=kind, tags=[preset])
            artifact = wandb.Artifact(f"{preset}-{name}", type=kind)
            for file in files:
                artifact.add_file(str(file))
            run.log_artifact(artifact)
            by_kind = {file.suffix: file for file in files}
            if kind == "figure":
                run.log({"figure": wandb.Image(str(by_kind[".png"]), caption=name)})
            else:
                import pandas

                cells = pandas.read_csv(by_kind[".csv"]).astype(object)
                cells = cells.where(cells.notna(), None)
                run.log({"table": wandb.Table(dataframe=cells, allow_mixed_types=True)})
            run.finish()


class TrackedRun(Tracker):
    """One run at W&B, open until `end`. ``sent`` is the last round that W&B has."""

    def __init__(
        self, wandb: Wandb, config: RunConfig, origin: dict[str, Any], made: dict[str, Any], note: Path
    ) -> None:
        self.wandb, self.note = wandb, note
        self.run: Any = None
        self.sent = sent_of(note)
        groups, method = wandb.groups.get(config.key, ()), str(config.method.get("name", "run"))
        data = config.dataset.options.get("stands_for") or config.dataset.name
        names = [*groups, config.preset, method, data, config.selection.get("name"), *wandb.settings.tags]
        with wandb.trying():
            self.run = wandb.open(
                id=f"{config.hash}-seed{config.seed}-{code.of(origin)[:6]}",
                name=f"{config.label} seed{config.seed}",
                group="".join(groups[:1])[:128],
                job_type=method[:64],
                tags=tuple(dict.fromkeys(str(tag)[:64] for tag in names if tag)),
                config={**config.model_dump(mode="json"), "origin": origin, "made": made},
            )
            self.run.define_metric("round")
            self.run.define_metric("*", step_metric="round")

    def log(self, records: Iterable[Record]) -> None:
        """Send the values of rounds, without those of single clients. A round that W&B has is not sent again."""
        rounds: dict[int, dict[str, float]] = {}
        for record in records:
            if record.split != "participation":
                rounds.setdefault(record.round, {})[metric_name(record)] = record.value
        with self.wandb.trying():
            for number in sorted(number for number in rounds if number > self.sent):
                self.run.log({"round": number, **rounds[number]}, step=number)
                self.sent = number
            self.note.write_text(str(self.sent))

    def end(self, state: RunState, result: Result | None = None) -> None:
        """Close it, with the ``result`` of a finished run; a run that was stopped is marked as preempted."""
        with self.wandb.trying():
            if result is not None:
                final = {f"final/{s}/{m}": value for s, ms in result.final.items() for m, value in ms.items()}
                pace = result.seconds / max(1, result.round)
                summary = {"state": str(state), "seconds": result.seconds, "seconds_per_round": pace}
                self.run.summary.update(summary | final)
            elif state is RunState.MISSING:
                self.run.mark_preempting()
            self.run.finish(exit_code=0 if result else 1)


def sent_of(note: Path) -> int:
    """The last round that was sent; -1 if none was."""
    return int(note.read_text()) if note.exists() else -1


def metric_name(record: Record) -> str:
    """The name of a record at W&B: ``test/accuracy``, or ``test/accuracy/class=3`` of a group."""
    name = f"{record.split}/{record.metric}"
    return name if record.group == "all" else f"{name}/{record.group}"

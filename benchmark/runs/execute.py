"""Carries out one run to its end: rounds, records, checkpoints, result."""

from __future__ import annotations

import contextlib
import hashlib
import logging
import math
import shutil
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from threadpoolctl import threadpool_limits

from benchmark.code import place_of
from benchmark.config.schema import RunConfig
from benchmark.engine.federation import FederatedRun
from benchmark.engine.records import Record
from benchmark.engine.state import Diverged, FederationState, Interrupted
from benchmark.errors import StorageError, UserError
from benchmark.runs import checkpoint
from benchmark.runs.build import build_run
from benchmark.runs.compare import CURRENT, RESUME, difference
from benchmark.runs.data import load_data
from benchmark.runs.files import write_atomically
from benchmark.runs.folder import Attempt, RunFolder, publish, whole_result
from benchmark.runs.origin import made_by, origin_of
from benchmark.runs.result_files import final_values, record_lines, write_result
from benchmark.runs.status import Result, RunResult, RunState
from benchmark.runs.tracker import TRACKED, Tracker
from benchmark.system import explain

log = logging.getLogger("fedtables")

WRITE_SECONDS = 1.0
"""Time between two writes of records. A checkpoint and the end write all records at once."""

Progress = Callable[[int, int, Sequence[Record]], object]
"""``progress(round, rounds, records)``, called after every round with what it recorded."""

Stop = Callable[[], bool]

Track = Callable[[RunConfig, dict[str, Any], dict[str, Any], Path], Tracker]
"""``track(config, origin, made, attempt)``."""


@dataclass(frozen=True)
class Launch:
    """What runs that are carried out together share.

    Attributes:
        id: Its name. An error, or several deaths, end a run for one launch.
        code: Digest of the snapshot of the code.
        track: Begins to send a run; None: nothing is sent.
    """

    id: str
    code: str = ""
    track: Track | None = None


def execute(
    config: RunConfig,
    folder: RunFolder,
    launch: Launch,
    progress: Progress = lambda *_: None,
    stop: Stop = lambda: False,
) -> RunResult:
    """Carry out one run that is not finished, or continue it, for the process that has the claim on it.

    It works in a folder of its own, which becomes the finished run by one rename. A failure leaves its message and its
    log there.

    Args:
        config: The run.
        folder: Its place.
        launch: What it is carried out for.
        progress: Called after every round.
        stop: Asked between clients and rounds. If it returns true, the run saves its state and returns.

    Raises:
        UserError: The run failed because of a user's mistake.
    """
    started = time.perf_counter()
    attempt = folder.begin(config, launch.id)
    with _log_file(attempt):
        try:
            _set_up_torch(config)
            data = load_data(config)
            run = build_run(config, data, stop)
            origin, made = origin_of(config, data, run), made_by(config, data, run, launch.code)
            session = RunSession(
                config, attempt, progress, stop, started, launch.track, run, data.ids, origin, made
            )
            log.info("start: %s", config.key)
            result = session.run()
            log.info("%s %s", result.state, result.message)
            return RunResult(result.state, " ".join(filter(None, [session.restarted, result.message])))
        except Exception as error:
            if not attempt.path.is_dir():  # this process was suspended, and another one has taken over
                found = folder.result()
                taken = RunResult(RunState.RUNNING, "another process has taken the run over")
                return RunResult(found.state, found.message) if found else taken
            explained = str(error) if isinstance(error, UserError) else explain(error)
            message = explained or _fault(error, attempt)
            log.error("failed: %s\n%s", message, traceback.format_exc())
            attempt.end(f"failed: {message}")
            if explained is None:
                return RunResult(RunState.FAILED, message)
            raise UserError(explained) from error


def _fault(error: Exception, attempt: Attempt) -> str:
    """The message about a fault of the program or of a user's file. Its first line says all that is known."""
    first, newline, rest = f"{type(error).__name__}: {error}".partition("\n")
    where = "; ".join(filter(None, [place_of(error), f"full log: {attempt.path / 'log.txt'}"]))
    return f"{first} ({where}){newline}{rest}"


def _set_up_torch(config: RunConfig) -> None:
    """Set what bits depend on beside the configuration's numbers: threads, algorithms, formats."""
    # With another number of threads the last bits of the results may differ.
    torch.set_num_threads(config.runtime.threads)
    threadpool_limits(config.runtime.threads)
    # Otherwise cuDNN chooses its algorithms by measured time, and a repeated run gives other bits.
    torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark = True, False
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = config.precision.tf32


@contextlib.contextmanager
def _log_file(attempt: Attempt) -> Iterator[None]:
    """Write the log to log.txt. A full disk is ignored: the command line says what ended the run."""
    handler: logging.Handler = logging.NullHandler()
    with contextlib.suppress(OSError):
        handler = logging.FileHandler(attempt.path / "log.txt")
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    handler.handleError = lambda record: None  # type: ignore[method-assign]
    logging.getLogger().addHandler(handler)
    log.setLevel(logging.INFO)
    try:
        yield
    finally:
        logging.getLogger().removeHandler(handler)
        with contextlib.suppress(OSError):
            handler.close()


# Rounds ----------------------------------------------------------------------------------------------------------


@dataclass
class RunSession:
    """One process that works on one run.

    Attributes:
        ids: The clients' numbers in the partition.
        origin, made: As a `Result` says them.
        restarted: Why no checkpoint of a process before is used; empty if one is, or if there is none.
        parts: What differed between this process and the one before, if both were asked for (``stale=keep``).
    """

    config: RunConfig
    attempt: Attempt
    progress: Progress
    stop: Stop
    started: float
    track: Track | None
    federation: FederatedRun
    ids: list[int]
    origin: dict[str, Any]
    made: dict[str, Any]
    restarted: str = ""
    parts: str = ""
    pending: list[Record] = field(default_factory=list)
    written_at: float = 0.0
    has_checkpoint: bool = False
    result: Result | None = None

    def run(self) -> RunResult:
        """Carry out all remaining rounds, and publish the result."""
        whole = self._whole()
        if whole is not None:
            return whole
        state = self._resume()
        track = self.track or (lambda *_: Tracker())
        tracker = track(self.config, self.origin, self.made, self.attempt.path)
        try:
            result = self._rounds(state, tracker)
        except Exception:
            tracker.end(RunState.FAILED)
            raise
        tracker.end(result.state, self.result)
        return result

    def _rounds(self, state: FederationState, tracker: Tracker) -> RunResult:
        run, config = self.federation, self.config
        self.progress(state.round, config.train.rounds, [])
        last: list[Record] = []
        try:
            if not self.attempt.size:
                records = run.evaluate(state)
                self._record(records)
                tracker.log(records)
            while state.round < config.train.rounds:
                state, report = run.run_round(state)
                records = report.records(self.ids)
                ended = state.round == config.train.rounds
                if ended or state.round % config.evaluation.every == 0:
                    last = run.evaluate(state)
                    records += last
                self._record(records)
                tracker.log(records)
                self.progress(state.round, config.train.rounds, records)
                if not ended and state.round % config.runtime.checkpoint_every == 0:
                    self._checkpoint(state)
                if not ended and self.stop():
                    raise Interrupted
            # A kept checkpoint may be the last round's: then the process was killed just before the end.
            last = last or run.evaluate(state)
        except Interrupted:
            self._checkpoint(state)
            self.attempt.end("stopped")
            return RunResult(
                RunState.MISSING, f"stopped after round {state.round}; the same command goes on from there"
            )
        except Diverged as error:
            return self._end(RunState.DIVERGED, state, str(error), [])
        return self._end(RunState.DONE, state, "", last)

    def _whole(self) -> RunResult | None:
        """Publish an attempt whose process died, or sleeps, between its last write and the rename; its result."""
        run, runtime = self.attempt.run, self.config.runtime
        for path in run.attempts():
            result = whole_result(path)
            keeps = runtime.stale == "keep"
            if result is not None and (keeps or not difference(result.origin, self.origin, CURRENT)):
                with contextlib.suppress(StorageError):  # another process may be faster
                    publish(path, run, runtime.keep_checkpoint)
                    return RunResult(result.state, result.message)
        return None

    def _resume(self) -> FederationState:
        """The state to start from. The attempt then has the records that belong to it."""
        run = self.federation
        # The attempt of this process has none.
        found = (
            (checkpoint.load(path / "checkpoint.pt", self.config), path)
            for path in self.attempt.run.attempts()
        )
        saved = [(content, path) for content, path in found if content is not None]
        for content, path in sorted(saved, key=lambda one: -one[0]["state"]["round"]):
            other = difference(content["origin"], self.origin, RESUME)
            if other and self.config.runtime.stale == "rerun":
                self.restarted = (
                    f"It had stopped after round {content['state']['round']} and has started again, because these are "
                    f"others now: {other}. runtime.stale=keep would have gone on, with a mark in tables."
                )
            elif self._adopt(content, path):
                # Another version of a library may build the same model with other tensors.
                run.layout.require_same(content["layout"], f"checkpoint {path / 'checkpoint.pt'}")
                before = content["parts"].split("; ")
                self.parts = "; ".join(filter(None, dict.fromkeys([*before, other])))
                self.started -= content["seconds"]  # the seconds of earlier processes count too
                self.restarted = ""
                log.info("resumed after round %d", content["state"]["round"])
                return run.restored(content["state"])
        if self.restarted:
            log.warning("%s", self.restarted)
        return run.initial_state()

    def _adopt(self, content: dict[str, Any], path: Path) -> bool:
        """Copy checkpoint and records of another attempt, whose process may only sleep; whether all are there."""
        try:
            lines = (path / "records.jsonl").read_bytes()[: content["records_bytes"]]
            whole = (path / "checkpoint.pt").read_bytes()
        except FileNotFoundError:
            return False
        if hashlib.sha256(lines).hexdigest() != content["records_sha256"]:
            return False  # after a power failure the checkpoint may be on the disk while the records are not
        write_atomically(self.attempt.path / "checkpoint.pt", whole)
        if (path / TRACKED).exists():
            shutil.copyfile(path / TRACKED, self.attempt.path / TRACKED)
        self.attempt.append(lines)
        return True

    def _record(self, records: Sequence[Record]) -> None:
        """Collect records. They are written once a second, because a file server is slow to open a file."""
        self.pending += [record for record in records if math.isfinite(record.value)]
        if time.monotonic() - self.written_at >= WRITE_SECONDS:
            self._write_records()

    def _write_records(self) -> None:
        self.attempt.append(record_lines(self.pending))
        self.pending, self.written_at = [], time.monotonic()

    def _checkpoint(self, state: FederationState) -> None:
        self._write_records()
        self.attempt.sync_records()
        content = {
            "hash": self.config.hash,
            "seed": self.config.seed,
            "layout": self.federation.layout.to_list(),
            "origin": self.origin,
            "parts": self.parts,
            "state": state.to_dict(),
            "seconds": time.perf_counter() - self.started,
            "records_bytes": self.attempt.size,
            "records_sha256": self.attempt.sha256.hexdigest(),
        }
        write_atomically(self.attempt.path / "checkpoint.pt", lambda stream: torch.save(content, stream))
        if not self.has_checkpoint:  # what others left is of no more use
            self.attempt.run.remove_attempts(but=self.attempt.path)
            self.has_checkpoint = True

    def _end(self, outcome: RunState, state: FederationState, message: str, last: list[Record]) -> RunResult:
        self._write_records()
        if self.config.runtime.keep_checkpoint:
            self._checkpoint(state)
        model = state.w.cpu().numpy().tobytes() + state.buffers.cpu().numpy().tobytes()
        self.result = Result(
            state=outcome,
            message=message,
            round=state.round,
            seconds=round(time.perf_counter() - self.started, 2),
            hash=self.config.hash,
            seed=self.config.seed,
            final=final_values(last, state.round),
            records_bytes=self.attempt.size,
            records_sha256=self.attempt.sha256.hexdigest(),
            model_sha256=hashlib.sha256(model).hexdigest(),
            origin=self.origin,
            made=self.made,
            parts=self.parts,
        )
        write_result(self.attempt.path, self.result)
        publish(self.attempt.path, self.attempt.run, self.config.runtime.keep_checkpoint)
        return RunResult(outcome, message)

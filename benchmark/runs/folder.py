"""A run on disk. A finished run is one folder, which is renamed into place and never changes.

``results/runs/<name>-<hash>/``

====================  =============================================================================================
``seed<k>/``          the finished run: ``config.yaml``, ``result.json``, ``records.jsonl``, ``log.txt``
``.seed<k>-<id>/``    an attempt, private to one process: ``config.yaml``, ``records.jsonl``, ``checkpoint.pt``,
                      ``log.txt``, ``launch`` (which launch it belongs to), and ``end`` (``stopped`` or ``failed: ...``;
                      without it the process is at work or died)
``.seed<k>.claim``    which process works on the run (`benchmark.runs.claim`)
``.seed<k>.old-<n>/`` a finished run that was moved away, because its code or its data were others
====================  =============================================================================================

A run is a function of its configuration, code and data. So it may be carried out twice, and nothing here has to exclude
that.
"""

import contextlib
import errno
import hashlib
import json
import os
import shutil
import uuid
from collections.abc import Collection
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import yaml

from benchmark.config.files import read_yaml
from benchmark.config.schema import RunConfig
from benchmark.errors import StorageError, wrong
from benchmark.runs import claim
from benchmark.runs.files import reading, storing, write_with_folder
from benchmark.runs.result_files import DamagedError, damaged, read_result, record_bytes
from benchmark.runs.status import Result

FORMAT = 3
"""Version of what lies in a results folder."""

CONTENT = frozenset(
    "runs imported tables figures launches code report published tuned weights rates.json".split()
)
"""What a results folder is known by."""

DEATHS = 3
"""Processes that may die over a run before its launch gives it up."""

AT_WORK = ("checkpoint.pt", "launch")
"""Files of an attempt that a finished run does not keep."""


@dataclass(frozen=True)
class RunFolder:
    """The place of one run.

    Attributes:
        path: The folder that exists when it is finished.
        by: Who ran it, if it was imported.
    """

    path: Path
    by: str = ""

    def _beside(self, ending: str) -> Path:
        return self.path.with_name(f".{self.path.name}{ending}")

    @property
    def is_finished(self) -> bool:
        """Whether the run is there, whatever made it."""
        return self.path.is_dir()

    def claimed(self) -> AbstractContextManager[bool]:
        return claim.claimed(self._beside(".claim"))

    @property
    def is_held(self) -> bool:
        return claim.is_held(self._beside(".claim"))

    @property
    def is_claimed(self) -> bool:
        """Whether a process has the claim, or left it when it died."""
        return self._beside(".claim").exists()

    # A finished run --------------------------------------------------------------------------------------------

    def result(self) -> Result | None:
        """What the finished run says; None if it is not finished. Raises `DamagedError`."""
        result = read_result(self.path)
        if result is not None:
            self._check_place(self.path / "result.json", result.hash, result.seed)
            records = self.path / "records.jsonl"
            size = records.stat().st_size if records.exists() else 0
            if size != result.records_bytes:
                raise damaged(records, f"{size} bytes; expected {result.records_bytes}")
        return result

    def check(self) -> Result | None:
        """As `result`, and the records are read in full."""
        result = self.result()
        if result is not None:
            record_bytes(self.path, result)
        return result

    def read_config(self) -> RunConfig:
        """What config.yaml of the finished run or of its newest attempt says.

        Raises `DamagedError` unless its hash and seed are those of the folder's name.
        """
        path = (self.path if self.is_finished else self._newest() or self.path) / "config.yaml"
        try:
            plain = read_yaml(path, "configuration")
            del plain["hash"]
            config = RunConfig.model_validate(plain)
        except StorageError:
            raise
        except (KeyError, ValueError) as error:
            raise damaged(path, str(error).partition("\n")[0]) from error
        self._check_place(path, config.hash, config.seed)
        return config

    def _check_place(self, path: Path, hash: str, seed: int) -> None:
        """Raise `DamagedError` if this folder is not the place of that configuration and seed, as after a copy."""
        expected = f"*-{hash}/seed{seed}"
        if (self.path.parent.name.rpartition("-")[2], self.path.name) != (hash, f"seed{seed}"):
            raise damaged(path, f"it belongs into a folder {expected}: copied or renamed")

    def move_away(self) -> Path:
        number = 1
        while self._beside(f".old-{number}").exists():
            number += 1
        with storing(self.path):
            return self.path.rename(self._beside(f".old-{number}"))

    # Attempts --------------------------------------------------------------------------------------------------

    def attempts(self) -> list[Path]:
        return list(self.path.parent.glob(f".{self.path.name}-*"))

    def begin(self, config: RunConfig, launch: str) -> "Attempt":
        path = self._beside(f"-{uuid.uuid4().hex[:12]}")
        plain = {"hash": config.hash, **config.model_dump(mode="json")}
        with storing(path):
            path.mkdir(parents=True)
            (path / "launch").write_text(launch)
            (path / "config.yaml").write_text(yaml.safe_dump(plain, sort_keys=False))
        return Attempt(path, self)

    def failure(self, launch: str) -> str:
        """Why this launch has given the run up: an error, or too many deaths; empty if it has not."""
        ends = [_text(path / "end") for path in self.attempts() if _text(path / "launch") == launch]
        failed = [end.removeprefix("failed: ") for end in ends if end.startswith("failed: ")]
        deaths = ends.count("") - self.is_held
        if not failed and deaths >= DEATHS:
            return f"{deaths} processes died over it. Perhaps it needs more memory: let fewer runs share it"
        return failed[0] if failed else ""

    def _newest(self) -> Path | None:
        return max(self.attempts(), key=lambda path: path.stat().st_mtime, default=None)

    def last_failure(self) -> tuple[str, Path] | None:
        """(message, folder) of the newest attempt if the launch that it was of has given the run up."""
        newest = self._newest()
        why = self.failure(_text(newest / "launch")) if newest else ""
        return (why, newest) if newest and why else None

    def rounds(self) -> int:
        """The last round that an attempt has recorded; 0 without one."""
        return max((_last_round(path / "records.jsonl") for path in self.attempts()), default=0)

    def remove_attempts(self, but: Path | None = None) -> None:
        """Remove all attempts but one."""
        for path in (path for path in self.attempts() if path != but):
            shutil.rmtree(path, ignore_errors=True)

    def tidy(self, keep_checkpoint: bool) -> None:
        """Remove what a finished run does not keep."""
        for name in AT_WORK:
            if not (keep_checkpoint and name == "checkpoint.pt"):
                (self.path / name).unlink(missing_ok=True)
        self.remove_attempts()


@dataclass
class Attempt:
    """What one process writes; nobody else does.

    Attributes:
        sha256, size: Of the records that are written.
    """

    path: Path
    run: RunFolder
    sha256: Any = field(default_factory=hashlib.sha256)
    size: int = 0

    def append(self, lines: bytes) -> None:
        path = self.path / "records.jsonl"
        with storing(path), path.open("ab") as stream:
            stream.write(lines)
        self.sha256.update(lines)
        self.size += len(lines)

    def sync_records(self) -> None:
        """Have the records on the disk, before a checkpoint that counts them."""
        with storing(self.path):
            _sync(self.path / "records.jsonl")

    def end(self, how: str) -> None:
        """Note ``stopped``, or ``failed: ...``. A full disk is ignored: the caller says what ended the run."""
        with contextlib.suppress(OSError):
            (self.path / "end").write_text(how)


def publish(attempt: Path, run: RunFolder, keep_checkpoint: bool) -> None:
    """Rename a whole attempt to the finished run. Who comes second leaves the same bits as they are."""
    with storing(attempt):
        for path in [*attempt.iterdir(), attempt]:
            _sync(path)
        try:
            attempt.rename(run.path)
        except OSError as error:
            if error.errno not in (errno.EEXIST, errno.ENOTEMPTY) or run.check() is None:
                raise
        _sync(run.path.parent)
    run.tidy(keep_checkpoint)


def whole_result(attempt: Path) -> Result | None:
    """The result of an attempt that has all that a finished run has; None otherwise."""
    try:
        result = read_result(attempt)
        return result if result is not None and record_bytes(attempt, result) else None
    except StorageError:
        return None


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _text(path: Path) -> str:
    with contextlib.suppress(OSError):
        return path.read_text(errors="replace")
    return ""


def _last_round(path: Path) -> int:
    with contextlib.suppress(OSError, ValueError, IndexError, KeyError), path.open("rb") as stream:
        stream.seek(max(0, os.fstat(stream.fileno()).st_size - 400))
        return int(json.loads(stream.read().splitlines()[-1])["round"])
    return 0


@dataclass(frozen=True)
class ResultsFolder:
    """A results folder: ``runs/``, ``imported/``, ``tables/``, ``launches/``, ``code/`` (snapshots).

    Only `imported` reads ``imported/<by>/<name>-<hash>/seed<k>/``, so that launches know nothing of these runs.

    ``stale``: what becomes of a finished run whose own code or data are others now, and of a checkpoint that was made
    in another way: carried out again, or used and marked.
    """

    root: Path
    stale: Literal["rerun", "keep"] = "rerun"

    def open(self) -> "ResultsFolder":
        """Create the folder, or check its format. Raises `StorageError` if one of the two fails."""
        marker, older = self.root / "FORMAT", self.root / "runs" / "FORMAT"
        with storing(self.root):
            if not marker.exists() and not older.exists():
                write_with_folder(marker, f"{FORMAT}\n".encode())
            format = (marker if marker.exists() else older).read_bytes().decode(errors="replace").strip()
        if format != str(FORMAT):
            raise StorageError(
                f"{self.root.absolute()}: got results of format {format!r}; expected {FORMAT}. They are of another "
                "version and stay as they are. Set results=FOLDER to another one."
            )
        return self

    def existing(self) -> "ResultsFolder":
        """As `open`, but for reading: a folder without runs stays as it is. `StorageError` if it has other content."""
        if (self.root / "runs").exists() or (self.root / "FORMAT").exists():
            return self.open()
        with reading(self.root):
            there = os.listdir(self.root) if self.root.exists() else []
        if there and not CONTENT.intersection(there):
            raise StorageError(wrong("results", str(self.root), f"a results folder; it has {there[0]!r}"))
        return self

    def run(self, key: str) -> RunFolder:
        return RunFolder(self.root / "runs" / key)

    def imported(self, key: str = "*/seed*") -> dict[str, RunFolder]:
        """The imported runs that fit a key or pattern, by their keys. Of two with one key the first name counts."""
        paths = sorted((self.root / "imported").glob(f"[!.]*/{key}"), reverse=True)
        return {f"{path.parent.name}/{path.name}": RunFolder(path, path.parents[1].name) for path in paths}

    def run_keys(self) -> list[str]:
        """Every run that is finished or has been begun here."""
        places = [*(self.root / "runs").glob("*/seed*"), *(self.root / "runs").glob("*/.seed*-*")]
        keys = {f"{path.parent.name}/{path.name.lstrip('.').partition('-')[0]}" for path in places}
        return sorted(key for key in keys if ".old" not in key)

    def names(self, keys: Collection[str]) -> dict[str, set[str]]:
        """What lies in the folders of the configurations of ``keys``; each is listed once, not once for each seed."""
        names: dict[str, set[str]] = {}
        for name in {key.partition("/")[0] for key in keys}:
            with contextlib.suppress(FileNotFoundError, NotADirectoryError):
                names[name] = set(os.listdir(self.root / "runs" / name))
        return names

    def finished(self, keys: Collection[str]) -> set[str]:
        """Those of ``keys`` that are finished."""
        names = self.names(keys)
        return {key for key in keys if key.partition("/")[2] in names.get(key.partition("/")[0], ())}

    def purge(self) -> int:
        """Remove runs that were moved away, launches that have ended, and snapshots of code that nothing names.

        Returns the number of folders.
        """
        left = list((self.root / "runs").glob("*/.seed*.old-*"))
        named = set()
        for key in self.run_keys():
            with contextlib.suppress(DamagedError):
                if result := self.run(key).result():
                    named.add(result.made["code"])
        for path in (self.root / "launches").glob("*/plan.json"):
            plan = json.loads(path.read_bytes())
            runs = [self.run(key) for key in plan["keys"]]
            is_queued = path.with_name("job").exists() and not all(run.is_finished for run in runs)
            if is_queued or any(run.is_held for run in runs):
                named.add(plan["code"])
            else:
                left.append(path.parent)
        left += [path for path in (self.root / "code").glob("*") if path.name not in named]
        for path in left:
            shutil.rmtree(path, ignore_errors=True)
        return len(left)

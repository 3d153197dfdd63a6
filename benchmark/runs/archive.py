"""Finished runs as one file, which other results folders import.

A ZIP file with ``archive.json`` (the format of the runs, and who ran them) and below ``<name>-<hash>/seed<k>/`` the
files of each run, without its checkpoint. It is data: nothing of it is executed or unpickled.
"""

import contextlib
import json
import math
import re
import struct
import tempfile
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Annotated
from zipfile import ZIP_DEFLATED, ZIP_STORED, BadZipFile, ZipFile, ZipInfo

from pydantic import AfterValidator, TypeAdapter, ValidationError

from benchmark.config.files import FileModel
from benchmark.errors import ConfigError, StorageError, shorten, validate, wrong
from benchmark.runs.compare import RESUME
from benchmark.runs.files import storing, write_atomically
from benchmark.runs.folder import FORMAT, ResultsFolder, RunFolder
from benchmark.runs.index import RunIndex
from benchmark.runs.result_files import DamagedError, final_values, read_records
from benchmark.runs.status import Result, RunState

NOTE = "archive.json"

FILES = ("config.yaml", "result.json", "records.jsonl", "log.txt")
"""Files of a run. A log may be missing."""

MEMBER = re.compile(rf"([\w+]+(?:-[\w+]+)*-[0-9a-f]{{12}}/seed[0-9]+)/({'|'.join(map(re.escape, FILES))})")
"""The only names that an archive may have beside `NOTE`: none of them leads out of a folder."""

SOURCE = re.compile(r"[\w-][\w.-]*(/[\w-][\w.-]*)*")
"""Names of a run's code, which are looked up in the checkout."""

LARGEST = 2**28
"""Most bytes of a file."""

UNREADABLE = (BadZipFile, zlib.error, struct.error, OSError, EOFError, RuntimeError)
"""What `zipfile` raises for a file that is none of its kind, damaged or encrypted."""


def _name(text: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]{0,39}", text):
        raise ConfigError(wrong("by", text, "who ran the runs: at most 40 letters, digits, - and _"))
    return text


By = Annotated[str, AfterValidator(_name)]
"""Who ran runs. It is the name of a folder, too."""


class _Note(FileModel):
    format: int
    by: By


@dataclass(frozen=True)
class Imported:
    """What `import_archive` has done.

    Attributes:
        by, folder: Who ran the runs, and where they are.
        new, before: How many were imported now, and how many had been imported before.
        same, others: How many were carried out here too, with the same records and with others. The own ones count.
        differs: What is different in this checkout -> how many runs it concerns.
    """

    by: str
    folder: Path
    new: int
    before: int
    same: int
    others: int
    differs: Mapping[str, int]

    def __str__(self) -> str:
        """Sentences about it, one in a line."""
        before = f", {self.before} were there" if self.before else ""
        lines = [f"{_runs(self.new)} by {self.by} imported to {self.folder}{before}."]
        if self.same or self.others:
            which = f"{_runs(self.same)} with the same records, {_runs(self.others)} with others"
            lines.append(f"Carried out here too, and the own ones count: {which}.")
        if self.differs:
            parts = "; ".join(f"{what} ({_runs(number)})" for what, number in self.differs.items())
            lines.append(f"Made with other code or data than this checkout has: {parts}.")
        return "\n".join(lines)


def _runs(number: int) -> str:
    return f"{number} run{'s' * (number != 1)}"


def write_archive(path: Path, runs: Mapping[str, RunFolder], by: str) -> None:
    """Write finished runs, by their keys. The same runs give the same bytes. `DamagedError` if one is damaged."""

    def fill(stream: IO[bytes]) -> None:
        with ZipFile(stream, "w") as archive:
            archive.writestr(ZipInfo(NOTE), json.dumps({"format": FORMAT, "by": by}), ZIP_DEFLATED)
            for key, run in runs.items():
                run.check()
                for file in (run.path / name for name in FILES):
                    if file.is_file():
                        archive.writestr(ZipInfo(f"{key}/{file.name}"), file.read_bytes(), ZIP_DEFLATED)

    write_atomically(path, fill)


def import_archive(path: Path, results: ResultsFolder) -> Imported:
    """Check all of an archive, then put its runs below ``imported/<by>/`` of a results folder.

    `UserError` if something in it is not what `write_archive` writes. Nothing was imported then.
    """
    index, place = RunIndex(results), results.root / "imported"
    found, moves = Counter[str](), dict[Path, Path]()
    with storing(place):
        place.mkdir(parents=True, exist_ok=True)
        temporary = tempfile.TemporaryDirectory(prefix=".", dir=place)
    with temporary, _refusing(path), ZipFile(path) as archive:
        by, members = _contents(archive)
        for key, names in members.items():
            folder, target = Path(temporary.name) / "runs" / key, place / by / key
            for name in names:
                content = archive.read(f"{key}/{name}")
                with storing(folder):
                    folder.mkdir(parents=True, exist_ok=True)
                    (folder / name).write_bytes(content)
            records = _checked(RunFolder(folder), key).records_sha256
            before, own = RunFolder(target).result(), index.result(key)
            if before is None:
                moves[folder] = target
            elif before.records_sha256 != records:
                raise ValueError(f"{target} has other records. Remove this folder to replace it")
            if own is not None and not index.by(key):
                found["same" if own.records_sha256 == records else "others"] += 1
        with storing(place):
            for folder, target in moves.items():
                target.parent.mkdir(parents=True, exist_ok=True)
                folder.rename(target)
    index.refresh(members)
    differs = Counter(text for key in members if index.by(key) == by and (text := index.differs(key)))
    before_them = len(members) - len(moves)
    return Imported(by, place / by, len(moves), before_them, found["same"], found["others"], differs)


@contextlib.contextmanager
def _refusing(path: Path) -> Iterator[None]:
    """Turn what goes wrong with the content of an archive into one message."""
    try:
        yield
        return
    except ValidationError as error:
        first = error.errors()[0]
        said = f"result.json: {'.'.join(map(str, first['loc']))}: {first['msg']}"
    except StorageError as error:
        if not isinstance(error, DamagedError):  # the disk
            raise
        said = error.problem
    except (*UNREADABLE, ValueError, KeyError, TypeError) as error:
        said = (getattr(error, "strerror", None) or str(error)).rstrip(".")
    raise ConfigError(f"import: {path}: {said}. Nothing was imported.")


def _contents(archive: ZipFile) -> tuple[str, dict[str, list[str]]]:
    """Who ran the runs, and the files of each run by its key."""
    runs: dict[str, list[str]] = {}
    for info in archive.infolist():
        match, known = MEMBER.fullmatch(info.filename), info.filename == NOTE
        if not known and (match is None or match[2] in runs.get(match[1], ())):
            expected = f"NAME-HASH/seedK/ with {', '.join(FILES)}, each once"
            raise ValueError(f"got the file {shorten(info.filename)}; expected {expected}")
        if info.file_size > LARGEST or info.compress_type not in (ZIP_STORED, ZIP_DEFLATED):
            raise ValueError(f"{info.filename}: larger than {LARGEST} bytes, or compressed in another way")
        if match is not None:
            runs.setdefault(match[1], []).append(match[2])
    note = validate(_Note, dict(json.loads(archive.read(NOTE))))
    if note.format != FORMAT:
        raise ValueError(f"got runs of format {note.format}; expected {FORMAT}")
    return note.by, runs


def _checked(run: RunFolder, key: str) -> Result:
    """The result of a run whose files belong together and to its key."""
    TypeAdapter(Result).validate_json((run.path / "result.json").read_bytes(), strict=True)
    result, config = run.result(), run.read_config()
    if result is None or config.key != key:
        raise ValueError(f"{key}: the configuration is that of {config.key}")
    origin = result.origin
    if not origin.keys() >= set(RESUME) or not all(map(SOURCE.fullmatch, origin["code"])):
        raise ValueError(
            f"{key}: result.json: got the code {shorten(origin.get('code'))}; expected names of files"
        )
    recorded = final_values(read_records(run.path, result), result.round)
    if result.state is RunState.DONE and _finite(result.final) != _finite(recorded):
        raise ValueError(f"{key}: the last values in result.json are not those of records.jsonl")
    return result


def _finite(final: Mapping[str, Mapping[str, float]]) -> dict[tuple[str, str], float]:
    """The values that records have."""
    return {(s, metric): v for s, of in final.items() for metric, v in of.items() if math.isfinite(v)}

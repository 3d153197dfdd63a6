"""The files of a finished run: ``result.json``, which carries a digest, and ``records.jsonl``, which it knows."""

import hashlib
import json
import time
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path

from benchmark import code
from benchmark.engine.records import Record
from benchmark.errors import StorageError
from benchmark.runs.files import reading, write_atomically
from benchmark.runs.status import Result, RunState

NOT_EVALUATED = ("train", "cost", "participation")
"""Splits of records that are about a round and not about the model after it."""


class DamagedError(StorageError):
    """A file of a finished run is not what was written.

    Attributes:
        problem: The run, the file, and what is wrong with it.
    """

    problem = ""


def damaged(path: Path, problem: str) -> DamagedError:
    """The error about a file of a finished run."""
    error = DamagedError(
        f"{path.absolute()}: damaged ({problem}). It is not used; the next launch carries the run out again."
    )
    error.problem = f"{'/'.join(path.parts[-3:])}: {problem}"
    return error


def final_values(records: Iterable[Record], round: int) -> dict[str, dict[str, float]]:
    """The values of an evaluation, {split: {metric: value}} for the whole set."""
    final: dict[str, dict[str, float]] = {}
    for record in records:
        if record.round == round and record.group == "all" and record.split not in NOT_EVALUATED:
            final.setdefault(record.split, {})[record.metric] = record.value
    return final


def record_lines(records: Iterable[Record]) -> bytes:
    """Records as lines of ``records.jsonl``."""
    return "".join(json.dumps(record._asdict()) + "\n" for record in records).encode()


def write_result(folder: Path, result: Result) -> None:
    """Write result.json, with the digest by which `read_result` knows it."""
    content = asdict(result) | {"updated": time.time()}
    content["digest"] = code.digest(content)
    write_atomically(folder / "result.json", json.dumps(content, indent=1).encode())


def read_result(folder: Path) -> Result | None:
    """What result.json says; None without a folder. Raises `DamagedError` for anything but what was written."""
    path = folder / "result.json"
    if not folder.is_dir():
        return None
    written = _content(path)
    try:
        content = json.loads(written)
        digest = content.pop("digest")
        result = Result(**content | {"state": RunState(content["state"])})
    except (TypeError, AttributeError, KeyError, ValueError) as error:
        raise damaged(path, str(error)) from error
    if digest != code.digest(content):
        raise damaged(path, "it is not what was written: another digest")
    return result


def read_records(folder: Path, result: Result) -> list[Record]:
    """The records of a finished run. `DamagedError` unless complete and unchanged."""
    # One array is parsed twice as fast as its lines one by one.
    lines = b",".join(record_bytes(folder, result).splitlines())
    return [Record(**record) for record in json.loads(b"[" + lines + b"]")]


def record_bytes(folder: Path, result: Result) -> bytes:
    """The content of ``records.jsonl``. `DamagedError` unless complete and unchanged."""
    path = folder / "records.jsonl"
    content = _content(path)
    if (len(content), hashlib.sha256(content).hexdigest()) != (result.records_bytes, result.records_sha256):
        raise damaged(path, f"{len(content)} bytes; expected {result.records_bytes} with another digest")
    return content


def _content(path: Path) -> bytes:
    """What a file of a finished run has. `DamagedError` if it is missing."""
    with reading(path):
        try:
            return path.read_bytes()
        except FileNotFoundError as error:
            raise damaged(path, "it is missing") from error

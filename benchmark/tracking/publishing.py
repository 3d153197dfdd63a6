"""Finished tables and figures on their way to W&B: an artifact of their files, the table as rows, the picture."""

from __future__ import annotations

import csv
import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmark.errors import StorageError
from benchmark.runs.files import write_atomically
from benchmark.runs.store import read_json
from benchmark.tracking.following import Locks
from benchmark.tracking.settings import Note, Publication, TrackingSettings
from benchmark.tracking.wandb_session import Broken, Session


def digest(publication: Publication) -> str:
    """SHA-256 over names and contents of the files; OSError if one is not there."""
    found = hashlib.sha256()
    for name in publication.files:
        content = Path(name).read_bytes()
        found.update(f"{Path(name).name} {len(content)} ".encode() + content)
    return found.hexdigest()


def note_path(root: Path, publication: Publication) -> Path:
    """Where it is noted what was sent."""
    return root / "wandb" / "published" / f"{publication.id}.json"


def is_published(settings: TrackingSettings, root: Path, publication: Publication) -> bool:
    """Whether these very files were sent."""
    note = _read(note_path(root, publication))
    try:
        return note.get("destination") == settings.destination and note.get("digest") == digest(publication)
    except OSError:
        return True  # gone meanwhile: nothing to send


def publish(
    publication: Publication, settings: TrackingSettings, root: Path, session: Session, locks: Locks
) -> None:
    """Send a table or figure, unless these very files were sent.

    Raises:
        Broken: wandb failed; nothing is noted.
        StorageError: the disk is full.
    """
    if is_published(settings, root, publication) or not locks.take(publication.id):
        return
    path = note_path(root, publication)
    old = _read(path)
    if old.get("destination") != settings.destination:
        old = {}
    before = Note(publication.id, settings.destination, str(old.get("mode", "online")), closed=True)
    before_file = str(old.get("file", ""))
    version, content = int(old.get("version", 0)) + 1, digest(publication)
    log = session.open(
        {
            "id": publication.id,
            "name": f"{publication.name} ({publication.preset})",
            "group": publication.name,
            "job_type": publication.kind,
            "tags": tuple(dict.fromkeys((*publication.tags, publication.preset, *settings.tags))),
            "notes": str(Path(publication.files[0]).absolute().parent),
            "config": {
                "kind": publication.kind,
                "name": publication.name,
                "preset": publication.preset,
                "files": list(publication.files),
            },
        },
        Note(**{**before.__dict__, "file": before_file}) if old else None,
        None,
        "",
    )
    try:
        _log_all(log.run, publication, max(version, log.first))
    except Exception as error:
        raise Broken(f"{type(error).__name__}: {error}") from error
    log.finish(0)
    locks.release(publication.id)
    plain = {"destination": settings.destination, "digest": content, "version": version}
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, json.dumps(plain | {"mode": log.mode, "file": log.file}).encode(), durable=False)


def _log_all(run: Any, publication: Publication, step: int) -> None:
    import wandb

    artifact = wandb.Artifact(
        f"{publication.preset}-{publication.name}",
        type=publication.kind,
        metadata={"preset": publication.preset, "name": publication.name},
    )
    values: dict[str, Any] = {"version": step}
    for name in publication.files:
        artifact.add_file(name)
        if publication.kind == "table" and name.endswith(".csv"):
            columns, rows = typed_rows(Path(name))
            values["table"] = wandb.Table(columns=columns, data=rows, allow_mixed_types=True)
        if publication.kind == "figure" and name.endswith(".png"):
            values["figure"] = wandb.Image(name, caption=publication.name)
    run.log_artifact(artifact)
    run.log(values, step=step)


def typed_rows(path: Path) -> tuple[list[str | int], list[list[Any]]]:
    """(names of the columns, rows) of a CSV; a column of numbers as numbers, and None for what is empty in it."""
    with path.open(newline="") as stream:
        header, *rows = list(csv.reader(stream))
    columns = [_typed([row[index] for row in rows]) for index in range(len(header))]
    return list(header), [list(row) for row in zip(*columns, strict=True)]


def _typed(cells: Sequence[str]) -> list[Any]:
    if not any(cells):
        return list(cells)
    try:
        return [float(cell) if cell else None for cell in cells]
    except ValueError:
        return list(cells)


def _read(path: Path) -> dict[str, Any]:
    try:
        return read_json(path) or {}
    except StorageError:
        return {}

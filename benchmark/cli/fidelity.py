"""``python -m benchmark fidelity``: write the ledger's document, check it, or measure what its switches change."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated

from benchmark.cli.launching import launcher_lock, run_missing, run_settings
from benchmark.cli.options import LaunchOptions, parse
from benchmark.cli.tracking import start, tracked_runs
from benchmark.errors import ConfigError, nearest
from benchmark.experiments.plan import check, unique_runs
from benchmark.experiments.tuning import TunedFolder
from benchmark.fidelity import effects
from benchmark.fidelity.document import render
from benchmark.fidelity.ledger import Chapter, load
from benchmark.paths import ROOT
from benchmark.runs.files import storage_error, write_atomically
from benchmark.runs.index import RunIndex
from benchmark.runs.store import Results

DOCUMENT = ROOT / "docs" / "fidelity.md"
COMMAND = "python -m benchmark fidelity"


@dataclass(frozen=True)
class DocumentOptions:
    """Options of the document and its check."""

    out: Annotated[Path, "FILE"] = DOCUMENT


@dataclass(frozen=True, kw_only=True)
class EffectsOptions(LaunchOptions):
    """Options of ``fidelity effects``."""

    preset: str = "quick"
    ids: Annotated[str | None, "ID,PATTERN*,..."] = None
    seeds: int | None = None
    results: Path = Path("results")
    tuned: str | None = None
    out: Path = effects.EFFECTS_FOLDER


def main(words: Sequence[str]) -> int:
    """Write the document; ``check``: exit code 1 if it is out of date; ``effects``: run, measure, note."""
    if words and words[0] == "effects":
        return _effects(parse(words[1:], "fidelity effects", EffectsOptions))
    checking = bool(words) and words[0] == "check"
    command = "fidelity check" if checking else "fidelity [check|effects]"
    path, text = parse(words[checking:], command, DocumentOptions).out, render(load()).encode()
    if checking:
        return _check(path, text)
    _write(path, text)
    print(path)
    return 0


def _check(path: Path, text: bytes) -> int:
    if path.is_file() and path.read_bytes() == text:
        print(f"{path}: up to date")
        return 0
    state = (
        "out of date with methods/fidelity, results/published and results/fidelity"
        if path.is_file()
        else "missing"
    )
    print(f"{path}: {state}; write it with: {COMMAND}", file=sys.stderr)
    return 1


def _write(path: Path, content: bytes) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise storage_error(error, path.parent) from error
    write_atomically(path, content)


def _chosen(chapters: Sequence[Chapter], pattern: str | None) -> list[Chapter]:
    """The chapters with the entries that fit one of the comma-separated patterns; all of them without any."""
    if pattern is None:
        return list(chapters)
    wanted = pattern.split(",")
    known = [entry.id for chapter in chapters for entry in chapter.entries if entry.effect is not None]
    for one in wanted:
        if not any(fnmatchcase(name, one) for name in known):
            raise ConfigError(
                f"ids: {one!r} fits no entry with an effect.{nearest(one, known)} There are: {', '.join(known)}."
            )
    return [
        chapter.model_copy(
            update={
                "entries": tuple(e for e in chapter.entries if any(fnmatchcase(e.id, one) for one in wanted))
            }
        )
        for chapter in chapters
    ]


def _effects(options: EffectsOptions) -> int:
    """Run both sides of the entries with an effect in the preset; exit code 0, 1 (a run failed) or 130 (stopped)."""
    preset, count, folder, chapters = options.preset, options.seeds, options.out, load()
    results = Results(options.results).open()
    old = effects.read(preset, folder)
    planned = effects.pairs(
        _chosen(chapters, options.ids),
        preset,
        None if count is None else range(count),
        run_settings(options.results, options),
        TunedFolder.of(options.tuned, results.root),
    )
    if not planned:
        raise ConfigError(f"fidelity effects: no chosen entry says what to measure in preset {preset}.")

    def check_all() -> None:
        for pair in planned:
            for cells in (pair.default, pair.switched):
                check(pair.spec, cells)

    plans = [(pair.spec, cells) for pair in planned for cells in (pair.default, pair.switched)]
    with start(options, results.root, plans, "effects "), launcher_lock(options, results):
        runs = unique_runs([cells for _, cells in plans])
        index = RunIndex(results)
        code = run_missing(options, index, runs, check_all, tracked_runs(plans, "effects "))
        if code == 130:
            return code
        lines = [effects.measure(pair, preset, index) for pair in planned]
    path = folder / f"{preset}.csv"
    _write(path, effects.as_csv(chapters, preset, old, lines))
    for line in lines:
        print(
            f"{line['id']}: {line['default_mean']} -> {line['switched_mean']} ({line['differences'] or 'nothing done'})"
        )
    print(f"{path}; into the document with: {COMMAND}")
    return code

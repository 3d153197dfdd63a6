"""``python -m benchmark fidelity``: write the ledger's document, check it, or measure what its switches change."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from benchmark.cli.arguments import positive, preset_of, read
from benchmark.cli.launching import LAUNCH_OPTIONS, launcher_lock, run_missing, settings_of_runs
from benchmark.cli.tracking import TRACKING_OPTIONS, start, tracked_runs
from benchmark.errors import ConfigError, nearest
from benchmark.experiments.plan import check, unique_runs
from benchmark.experiments.tuning import TunedFolder
from benchmark.fidelity import effects
from benchmark.fidelity.document import render
from benchmark.fidelity.ledger import ROOT, Chapter, load
from benchmark.runs.files import storage_error, write_atomically
from benchmark.runs.index import RunIndex
from benchmark.runs.store import Results

DOCUMENT = ROOT / "docs" / "fidelity.md"
COMMAND = "python -m benchmark fidelity"
FIDELITY_OPTIONS = {
    "preset": "quick|small|paper",
    "ids": "ID,PATTERN*,...",
    "seeds": "NUMBER",
    "results": "FOLDER",
    "tuned": "FOLDER|off",
}
OUT = {"out": "FILE"}


def main(words: Sequence[str]) -> int:
    """Write the document; ``check``: exit code 1 if it is out of date; ``effects``: run, measure, note."""
    if words and words[0] == "effects":
        return _effects(
            read(
                words[1:],
                {**FIDELITY_OPTIONS, **LAUNCH_OPTIONS, **TRACKING_OPTIONS, "out": "FOLDER"},
                "fidelity effects",
            )
        )
    checking = bool(words) and words[0] == "check"
    values = read(words[checking:], OUT, "fidelity check" if checking else "fidelity [check|effects]")
    path, text = Path(values.get("out", DOCUMENT)), render(load()).encode()
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


def _effects(values: Mapping[str, str]) -> int:
    """Run both sides of the entries with an effect in the preset; exit code 0, 1 (a run failed) or 130 (stopped)."""
    preset, chapters = preset_of(values), load()
    count = positive(values, "seeds")
    results = Results(Path(values.get("results", "results"))).open()
    folder = Path(values["out"]) if "out" in values else effects.EFFECTS_FOLDER
    old = effects.read(preset, folder)
    planned = effects.pairs(
        _chosen(chapters, values.get("ids")),
        preset,
        None if count is None else range(count),
        settings_of_runs(values),
        TunedFolder.of(values.get("tuned"), results.root),
    )
    if not planned:
        raise ConfigError(f"fidelity effects: no chosen entry says what to measure in preset {preset}.")

    def check_all() -> None:
        for pair in planned:
            for cells in (pair.default, pair.switched):
                check(pair.spec, cells)

    plans = [(pair.spec, cells) for pair in planned for cells in (pair.default, pair.switched)]
    with start(values, results.root, plans, "effects "), launcher_lock(values, results):
        runs = unique_runs([cells for _, cells in plans])
        code = run_missing(values, results, runs, check_all, tracked_runs(plans, "effects "))
        if code == 130:
            return code
        index = RunIndex(results)
        lines = [effects.measure(pair, preset, index) for pair in planned]
    path = folder / f"{preset}.csv"
    _write(path, effects.as_csv(chapters, preset, old, lines))
    for line in lines:
        print(
            f"{line['id']}: {line['default_mean']} -> {line['switched_mean']} ({line['differences'] or 'nothing done'})"
        )
    print(f"{path}; into the document with: {COMMAND}")
    return code

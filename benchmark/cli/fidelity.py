"""``python -m benchmark fidelity``: write the ledger's document, check it, or measure what its switches change."""

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import Field

from benchmark.cli.document import write_pages
from benchmark.cli.launching import run_missing, run_settings
from benchmark.cli.options import PresetOptions, parse
from benchmark.errors import ConfigError
from benchmark.experiments.spec import matching
from benchmark.experiments.tuning import TunedFolder
from benchmark.fidelity.ledger import load
from benchmark.paths import ROOT
from benchmark.runs.files import write_with_folder
from benchmark.runs.folder import ResultsFolder
from benchmark.runs.index import RunIndex


class FidelityOptions(PresetOptions):
    """Options of ``fidelity effects``."""

    ids: str | None = Field(
        None,
        title="ID,PATTERN*,...",
        description="entries of docs/fidelity.md; if left out: all that have a switch to measure",
    )
    dataset_options: Mapping[str, Any] = Field({}, exclude=True)


def main(words: Sequence[str]) -> int:
    """Write the document; ``check``: exit code 1 if it is out of date; ``effects``: run, measure, note."""
    if words and words[0] == "effects":
        return _effects(parse(words[1:], "fidelity effects", FidelityOptions))
    return write_pages(words, "fidelity", ROOT / "docs", "benchmark.fidelity.document")


def _effects(options: FidelityOptions) -> int:
    """Run both sides of the entries with an effect in the preset; exit code 0, 1 (a run failed) or 130 (stopped)."""
    preset, count, chapters = options.preset, options.seeds, load()
    measured = [entry.id for chapter in chapters for entry in chapter.entries if entry.effect is not None]
    ids = matching(measured, options.ids, "ids", "the entries with an effect")
    selected = [
        chapter.model_copy(update={"entries": tuple(entry for entry in chapter.entries if entry.id in ids)})
        for chapter in chapters
    ]
    from benchmark.fidelity import effects

    folder = options.out or effects.EFFECTS_FOLDER
    index = RunIndex(ResultsFolder(options.results, options.stale).open())
    old = effects.read(preset, folder)
    pairs = effects.pairs(
        selected,
        preset,
        None if count is None else range(count),
        run_settings(index.results, options),
        TunedFolder.of(options.tuned, options.results),
    )
    if not pairs:
        raise ConfigError(f"fidelity effects: no chosen entry says what to measure in preset {preset}.")
    plans = [(pair.spec, cells) for pair in pairs for cells in (pair.default, pair.switched)]
    with run_missing(options, index, plans, prefix="effects ") as code:
        if code == 130:
            return code
        lines = [effects.measure(pair, preset, index) for pair in pairs]
    path = folder / f"{preset}.csv"
    write_with_folder(path, effects.as_csv(chapters, preset, old, lines))
    for line in lines:
        print(
            f"{line['id']}: {line['default_mean']} -> {line['switched_mean']} ({line['differences'] or 'nothing done'})"
        )
    print(f"{path}; into the document with: python -m benchmark fidelity")
    return code

"""What the switches of the fidelity ledger change: the cell of each entry as it is, and with the switch."""

from pathlib import Path

from benchmark.commands.launching import run_missing, run_settings
from benchmark.commands.tables import TableOptions
from benchmark.errors import ConfigError
from benchmark.experiments.spec import matching
from benchmark.experiments.tuning import TunedFolder
from benchmark.fidelity.ledger import load
from benchmark.runs.files import write_with_folder
from benchmark.runs.folder import ResultsFolder
from benchmark.runs.index import RunIndex

NAME = "fidelity_effects"
"""How the table is asked for."""


def measure_effects(options: TableOptions) -> tuple[int, Path | None]:
    """Run both sides of the entries that ``rows`` names (all, if left out); the exit code, and the file."""
    preset, count, chapters = options.preset, options.seeds, load()
    measured = [entry.id for chapter in chapters for entry in chapter.entries if entry.effect is not None]
    ids = matching(measured, options.rows, "rows", "the entries of the ledger with an effect")
    selected = [
        chapter.model_copy(update={"entries": tuple(entry for entry in chapter.entries if entry.id in ids)})
        for chapter in chapters
    ]
    from benchmark.fidelity import effects

    folder = options.out or effects.EFFECTS_FOLDER
    index = RunIndex(ResultsFolder(options.results, options.stale).open())
    old = effects.read(preset, folder)
    seeds, extra = None if count is None else range(count), run_settings(index.results, options)
    pairs = effects.pairs(selected, preset, seeds, extra, TunedFolder.of(options.tuned, options.results))
    if not pairs:
        raise ConfigError(f"{NAME}: no chosen entry says what to measure in preset {preset}.")
    plans = [(pair.spec, cells) for pair in pairs for cells in (pair.default, pair.switched)]
    with run_missing(options, index, plans, prefix="effects ") as code:
        if code == 130:
            return code, None
        lines = [effects.measure(pair, preset, index) for pair in pairs]
    path = folder / f"{preset}.csv"
    write_with_folder(path, effects.as_csv(chapters, preset, old, lines))
    for line in lines:
        change = line["differences"] or "nothing done"
        print(f"{line['id']}: {line['default_mean']} -> {line['switched_mean']} ({change})")
    print(path)
    return code, path

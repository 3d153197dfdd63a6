"""``python -m benchmark figure``: run what a figure needs, draw it, write picture, numbers (CSV) and caption."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmark.cli.arguments import positive, preset_of, read
from benchmark.cli.launching import LAUNCH_OPTIONS, launcher_lock, run_missing, settings_of_runs
from benchmark.cli.tracking import TRACKING_OPTIONS, publication, start, tracked_runs
from benchmark.errors import ConfigError, nearest
from benchmark.experiments.figures import FigureSpec, find_figures
from benchmark.experiments.plan import Cells, check, plan, unique_runs
from benchmark.experiments.tuning import TunedFolder
from benchmark.figures.registry import Drawing, Kind, Request, find
from benchmark.figures.style import save
from benchmark.reports.notes import tuning_lines
from benchmark.runs.files import storage_error, write_atomically
from benchmark.runs.index import RunIndex
from benchmark.runs.store import Results

FIGURE_OPTIONS = {
    "paper": "fedld|fedsdc|feddiverse|fedmr",
    "figure": "NUMBER",
    "name": "FILE of conf/figure",
    "preset": "quick|small|paper",
    "seeds": "NUMBER",
    "results": "FOLDER",
    "tuned": "FOLDER|off",
    "out": "FOLDER",
}


def main(words: Sequence[str]) -> int:
    """Run what is missing and draw; exit code 0, 1 (a run failed) or 130 (stopped)."""
    values = read(words, {**FIGURE_OPTIONS, **LAUNCH_OPTIONS, **TRACKING_OPTIONS}, "figure")
    preset = preset_of(values)
    specs = _chosen(values, preset)
    results = Results(Path(values.get("results", "results"))).open()
    count = positive(values, "seeds")
    extra = settings_of_runs(values)
    tuned = TunedFolder.of(values.get("tuned"), results.root)
    requests: list[tuple[Kind, Request]] = []
    for spec in specs:
        table, options = spec.runs, spec.settings(preset)
        cells: Cells = {}
        if table is not None and spec.whole is not None:
            chosen = tuned.load(spec.whole, preset)
            cells = plan(table, preset, None if count is None else range(count), extra, chosen)
        request = Request(spec, preset, options, table, cells, RunIndex(results), extra, count)
        requests.append((find(spec.kind), request))

    def check_all() -> None:
        for _, request in requests:
            if request.table is not None:
                check(request.table, request.cells)

    plans = [(request.table, request.cells) for _, request in requests if request.table is not None]
    with start(values, results.root, plans) as tracker, launcher_lock(values, results):
        runs = unique_runs([request.cells for _, request in requests])
        code = run_missing(values, results, runs, check_all, tracked_runs(plans))
        if code == 130:
            return code
        folder = Path(values.get("out") or results.root / "figures" / preset)
        for draw, request in requests:
            paths = _write(draw(request), request, folder)
            print(f"{paths[0].with_suffix('')}.{{png,pdf,csv,md}}")
            spec = request.spec
            tracker.publish(publication("figure", spec.name, preset, folder, [spec.paper]))
    return code


def _chosen(values: Mapping[str, str], preset: str) -> list[FigureSpec]:
    """The figures asked for; without a name or number, those that the preset has."""
    number = positive(values, "figure")
    if "name" in values:
        every = {spec.name: spec for spec in find_figures()}
        if values["name"] not in every:
            raise ConfigError(
                f"name: came {values['name']!r}.{nearest(values['name'], every)} Allowed: {', '.join(every)}."
            )
        return [every[values["name"]]]
    found = find_figures(values.get("paper"), number)
    return found if number is not None else [spec for spec in found if preset in spec.presets]


def _write(drawing: Drawing, request: Request, folder: Path) -> list[Path]:
    spec = request.spec
    stem = folder / spec.name
    lines = [
        f"# {spec.title}",
        f"![{spec.title}]({spec.name}.png)",
        " ".join(spec.caption.split()),
        *drawing.remarks,
    ]
    chosen = {key: cell.chosen for key, cell in request.cells.items() if cell.chosen is not None}
    if request.table is not None and chosen:
        lines.append("Hyper-parameters. " + " ".join(tuning_lines(request.table, chosen)))
    if request.preset != "paper":
        lines.append(
            f"Preset {request.preset}: other data or less of them, a smaller model and budget; not the paper's numbers."
        )
    try:
        paths = save(drawing.figure, stem)
    except OSError as error:
        raise storage_error(error, folder) from error
    data = drawing.data.to_csv(index=False).encode()
    text = "\n\n".join(line for line in lines if line) + "\n"
    write_atomically(stem.with_suffix(".csv"), data, durable=False)
    write_atomically(stem.with_suffix(".md"), text.encode(), durable=False)
    return paths

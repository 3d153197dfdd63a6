"""``python -m benchmark figure``: run what a figure needs, draw it, write picture, numbers (CSV) and caption."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import Field, PositiveInt

from benchmark.cli.launching import run_missing, run_settings
from benchmark.cli.options import PresetOptions, parse
from benchmark.config.schema import declared
from benchmark.errors import ConfigError, wrong
from benchmark.experiments.figures import FigureSpec, find_figures
from benchmark.experiments.plan import Cells, plan
from benchmark.experiments.selection import TableChoice
from benchmark.experiments.tuning import TunedFolder
from benchmark.runs.files import storing, write_atomically
from benchmark.runs.index import RunIndex
from benchmark.runs.store import ResultsFolder

if TYPE_CHECKING:
    from benchmark.figures.registry import Drawing, Request


class FigureOptions(PresetOptions):
    """Options of the command."""

    paper: str | None = declared(TableChoice, "paper")
    figure: PositiveInt | None = Field(
        None, description="number of the figure in the paper; if left out: all"
    )
    name: str | None = Field(
        None, title="FILE of conf/figure", description="one file of figures, instead of paper and figure"
    )


def main(words: Sequence[str]) -> int:
    """Run what is missing and draw; exit code 0, 1 (a run failed) or 130 (stopped)."""
    options = parse(words, "figure", FigureOptions)
    preset, count = options.preset, options.seeds
    figures = [(spec, spec.settings(preset)) for spec in _chosen(options)]
    from benchmark.figures.registry import Request, find

    index = RunIndex(ResultsFolder(options.results, options.stale).open())
    extra = run_settings(index.results, options)
    extra["dataset"] = {"options": options.dataset_options}
    tuned = TunedFolder.of(options.tuned, options.results)
    requests = []
    for spec, settings in figures:
        cells = Cells()
        if spec.runs is not None and spec.whole is not None:
            values = tuned.load(spec.whole, preset)
            cells = plan(spec.runs, preset, None if count is None else range(count), extra, values)
        requests.append(Request(spec, preset, settings, cells, index, extra, count))
    draw = [find(spec.kind) for spec, _ in figures]
    plans = [(request.runs, request.cells) for request in requests if request.spec.runs is not None]
    folder = options.out or options.results / "figures" / preset
    with run_missing(options, index, plans) as code:
        if code == 130:
            return code
        for kind, request in zip(draw, requests, strict=True):
            print(f"{_write(kind(request), request, folder, options.remarks)}.{{png,pdf,csv,md}}")
    print(_write_gallery(folder, preset))
    return code


def _chosen(options: FigureOptions) -> list[FigureSpec]:
    """The figures asked for; without a name or number, those that the preset has."""
    if options.name is not None:
        every = {spec.name: spec for spec in find_figures()}
        if options.name not in every:
            raise ConfigError(wrong("name", options.name, f"one of: {', '.join(every)}", known=every))
        return [every[options.name]]
    found = find_figures(options.paper, options.figure)
    return found if options.figure is not None else [spec for spec in found if options.preset in spec.presets]


def _write(drawing: Drawing, request: Request, folder: Path, remarks: Sequence[str]) -> Path:
    """Write the files of a figure, with ``remarks`` below its caption; their path without an ending."""
    from benchmark.reports.notes import tuning_lines
    from benchmark.reports.pictures import WIDTHS, fit, save
    from benchmark.reports.render.csv import to_csv

    spec = request.spec
    stem = folder / spec.name
    lines = [
        f"# {spec.title}",
        f"![{spec.title}]({spec.name}.png)",
        " ".join(spec.caption.split()),
        *drawing.remarks,
    ]
    chosen = {key: cell.chosen for key, cell in request.cells.items() if cell.chosen is not None}
    if chosen:
        lines.append("Hyper-parameters. " + " ".join(tuning_lines(request.runs, chosen)))
    lines += remarks
    if request.preset != "paper":
        lines.append(
            f"Preset {request.preset}: other data or less of them, a smaller model and budget; not the paper's numbers."
        )
    fit(drawing.figure, WIDTHS[spec.size])
    with storing(folder):
        save(drawing.figure, stem)
    data = to_csv(drawing.data, index=False).encode()
    text = "\n\n".join(line for line in lines if line) + "\n"
    write_atomically(stem.with_suffix(".csv"), data, durable=False)
    write_atomically(stem.with_suffix(".md"), text.encode(), durable=False)
    return stem


def _write_gallery(folder: Path, preset: str) -> Path:
    """Write all figures of the folder on one page, which repository hosts show with the folder; its path."""
    page = folder / "README.md"
    parts = [f"# Figures of preset {preset}\n"]
    for path in sorted(folder.glob("*.md")):
        if path != page:
            parts.append(f"#{path.read_text(encoding='utf-8')}")
    write_atomically(page, "\n".join(parts).encode(), durable=False)
    return page

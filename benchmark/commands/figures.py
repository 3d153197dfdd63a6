"""Figures: run what they need, draw them, write picture, numbers (CSV) and caption."""

from pathlib import Path

from pydantic import Field, PositiveInt

from benchmark.commands.launching import run_missing, run_settings, track_files
from benchmark.commands.options import LaunchOptions
from benchmark.config.schema import declared
from benchmark.errors import ConfigError, NothingToDraw, wrong
from benchmark.experiments.figures import FigureSpec, find_figures
from benchmark.experiments.plan import Cells
from benchmark.experiments.selection import RunQuery, TableChoice, plan_cells
from benchmark.runs.folder import ResultsFolder
from benchmark.runs.index import RunIndex


class FigureOptions(RunQuery, LaunchOptions):
    """Options of `make_figures`."""

    paper: str | None = declared(TableChoice, "paper")
    figure: PositiveInt | None = Field(
        None, description="number of the figure in the paper; if left out: all"
    )
    name: str | None = Field(
        None, title="FILE of conf/figure", description="one file of figures, instead of paper and figure"
    )
    out: Path | None = Field(
        None, description="folder of the figures; if left out: figures/PRESET in the results folder"
    )


def make_figures(options: FigureOptions) -> tuple[int, list[Path]]:
    """Run what is missing and draw; the exit code, and the files without their endings.

    A figure without anything to draw is one line and no failure.
    """
    preset = options.preset
    figures = [(spec, spec.settings(preset)) for spec in _figures(options)]
    from benchmark.papers import figures as registry

    index = RunIndex(ResultsFolder(options.results, options.stale).open())
    extra = run_settings(index.results, options) | {"dataset": {"options": options.dataset_options}}
    requests = []
    for spec, settings in figures:
        cells = Cells()
        if spec.runs is not None and spec.whole is not None:
            cells = plan_cells(spec.whole, spec.runs, options, extra)
        requests.append(registry.Request(spec, preset, settings, cells, index, extra, options.seeds))
    drawings = [registry.find(spec.kind) for spec, _ in figures]
    plans = [(request.runs, request.cells) for request in requests if request.spec.runs is not None]
    folder, drawn = options.out or options.results / "figures" / preset, []
    with run_missing(options, index, plans) as code:
        for draw, request in zip(drawings, requests, strict=True) if code != 130 else ():
            try:
                drawn.append(registry.write(draw(request), request, folder, options.remarks))
            except NothingToDraw as why:
                print(f"not drawn: {why}")
            else:
                print(f"{drawn[-1]}.{{png,pdf,csv,md}}")
        track_files(options, index.results.root, "figure", preset, drawn)
    return code, drawn


def _figures(options: FigureOptions) -> list[FigureSpec]:
    """The figures asked for; without a name or number, those that the preset has."""
    if options.name is not None:
        specs = {spec.name: spec for spec in find_figures()}
        if options.name not in specs:
            raise ConfigError(wrong("name", options.name, f"one of: {', '.join(specs)}", known=specs))
        return [specs[options.name]]
    figures = find_figures(options.paper, options.figure)
    return [spec for spec in figures if options.figure is not None or options.preset in spec.presets]

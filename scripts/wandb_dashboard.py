"""The dashboard of tracked runs as code: a W&B report with test accuracy, worst group, loss, time, machine and tables.

    python scripts/wandb_dashboard.py                         # prints what it consists of; needs nothing, sends nothing
    python scripts/wandb_dashboard.py create ENTITY [PROJECT]  # makes the report; needs `pip install wandb-workspaces`

The names of metrics are those that ``docs/wandb.md`` lists.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

PROJECT = "fedtables"
METHOD = "method.name"
"""Key of a run's configuration that curves are grouped by: a line per method, its spread over seeds and settings."""


@dataclass(frozen=True)
class Chart:
    """One panel.

    Attributes:
        title: above it.
        metrics: names of what it shows; of a table the name of the logged table.
        kind: curves over ``x``, bars of final values, or a logged table.
        x: of curves: ``round``, or a name that W&B gives the time since the start.
        grouped: whether the runs of a method become one line with mean and standard deviation.
    """

    title: str
    metrics: tuple[str, ...]
    kind: Literal["line", "bar", "table"] = "line"
    x: str = "round"
    grouped: bool = True


@dataclass(frozen=True)
class Section:
    """A heading, the runs below it by their job type, and the panels."""

    title: str
    charts: tuple[Chart, ...]
    job_type: Literal["training", "table"] = "training"


SECTIONS = (
    Section("Test accuracy", (Chart("Test accuracy by round", ("test/accuracy",)),)),
    Section(
        "Worst group",
        (Chart("Worst-group accuracy by round", ("test/worst_group_accuracy",)),),
    ),
    Section(
        "Loss",
        (
            Chart("Training loss by round", ("train/loss",)),
            Chart("Test loss by round", ("test/loss",)),
        ),
    ),
    Section("Time", (Chart("Seconds per round", ("seconds_per_round",), "bar"),)),
    Section(
        "Machine",
        (
            Chart(
                "Memory of the process, MB",
                ("system/proc.memory.rssMB",),
                x="RelativeTime(Process)",
                grouped=False,
            ),
            Chart("CPU of the process, %", ("system/cpu",), x="RelativeTime(Process)", grouped=False),
            Chart("GPU in use, %", ("system/gpu.0.gpu",), x="RelativeTime(Process)", grouped=False),
        ),
    ),
    Section("Tables", (Chart("Finished tables", ("table",), "table"),), "table"),
)


class Missing(Exception):
    """The package that makes reports is not installed."""


def report(entity: str, project: str = PROJECT) -> Any:
    """The report as an object of ``wandb_workspaces``; nothing is sent. `Missing` without that package."""
    try:
        import wandb_workspaces.reports.v2 as wr
    except ImportError as error:
        raise Missing(
            "wandb_dashboard: needs the package wandb-workspaces, which is no part of the environment. Install it into "
            "one of your own: pip install wandb-workspaces (the extra `dashboard` of pyproject.toml)."
        ) from error
    blocks: list[Any] = []
    for section in SECTIONS:
        runs = wr.Runset(
            entity=entity,
            project=project,
            name=section.title,
            # Tables and figures are runs of their own job types; a training's is the name of its method.
            filters="JobType = 'table'"
            if section.job_type == "table"
            else "JobType not in ['table', 'figure']",
        )
        blocks += [wr.H2(text=section.title), wr.PanelGrid(runsets=[runs], panels=_panels(wr, section))]
    return wr.Report(entity=entity, project=project, title="FedTables", blocks=blocks, width="fluid")


def _panels(wr: Any, section: Section) -> list[Any]:
    width = 24 // len(section.charts)
    panels = []
    for index, chart in enumerate(section.charts):
        layout = wr.Layout(x=index * width, y=0, w=width, h=10)
        group = {"groupby": wr.Config(METHOD), "groupby_aggfunc": "mean"} if chart.grouped else {}
        if chart.kind == "table":
            panels.append(wr.WeavePanelSummaryTable(table_name=chart.metrics[0], layout=layout))
        elif chart.kind == "bar":
            names = [wr.SummaryMetric(name) for name in chart.metrics]
            panels.append(wr.BarPlot(title=chart.title, metrics=names, layout=layout, **group))
        else:
            spread = {"groupby_rangefunc": "stddev"} if chart.grouped else {}
            names = list(chart.metrics)
            panels.append(
                wr.LinePlot(title=chart.title, x=chart.x, y=names, layout=layout, **group, **spread)
            )
    return panels


def main(words: Sequence[str]) -> int:
    """Print or create; exit code 0, or 2 for a user's mistake."""
    if not words:
        for section in SECTIONS:
            print(section.title)
            for chart in section.charts:
                print(f"  {chart.title}: {', '.join(chart.metrics)} ({chart.kind})")
        return 0
    if words[0] != "create" or not 2 <= len(words) <= 3:
        print(
            f"error: came {' '.join(words)!r}; expected nothing, or: create ENTITY [PROJECT]", file=sys.stderr
        )
        return 2
    try:
        made = report(*words[1:])
    except Missing as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    made.save()
    print(made.url)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

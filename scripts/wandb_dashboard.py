"""The dashboard of tracked runs as code: a W&B report with test accuracy, worst group, loss, time and tables.

    python scripts/wandb_dashboard.py                         # prints what it consists of; needs nothing, sends nothing
    python scripts/wandb_dashboard.py create ENTITY [PROJECT]  # makes the report; needs `pip install wandb-workspaces`

The names of metrics are those that ``docs/wandb.md`` lists.
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

PROJECT = "fedtables"
METHOD = "method.name"
"""Key of a run's configuration that curves are grouped by: a line per method, its spread over seeds and settings."""


@dataclass(frozen=True)
class Chart:
    """A panel: curves by round, bars of final values, or a logged table. Runs of one method become one line."""

    title: str
    metric: str
    kind: Literal["line", "bar", "table"] = "line"


SECTIONS = {
    "Test accuracy": [Chart("Test accuracy by round", "test/accuracy")],
    "Worst group": [Chart("Worst-group accuracy by round", "test/worst_group_accuracy")],
    "Loss": [Chart("Training loss by round", "train/loss"), Chart("Test loss by round", "test/loss")],
    "Time": [Chart("Seconds per round", "seconds_per_round", "bar")],
    "Tables": [Chart("Finished tables", "table", "table")],
}
"""Panels by heading."""


def report(entity: str, project: str = PROJECT) -> Any:
    """The report as an object of ``wandb_workspaces``; nothing is sent. `ImportError` without that package."""
    import wandb_workspaces.reports.v2 as wr

    blocks: list[Any] = []
    for title, charts in SECTIONS.items():
        # Tables and figures have job types of their own; that of a run is the name of its method.
        chosen = "JobType = 'table'" if title == "Tables" else "JobType not in ['table', 'figure']"
        runs = wr.Runset(entity=entity, project=project, name=title, filters=chosen)
        width = 24 // len(charts)
        panels = [_panel(wr, chart, index * width, width) for index, chart in enumerate(charts)]
        blocks += [wr.H2(text=title), wr.PanelGrid(runsets=[runs], panels=panels)]
    return wr.Report(entity=entity, project=project, title="FedTables", blocks=blocks, width="fluid")


def _panel(wr: Any, chart: Chart, left: int, width: int) -> Any:
    options: dict[str, Any] = {"layout": wr.Layout(x=left, y=0, w=width, h=10)}
    if chart.kind == "table":
        return wr.WeavePanelSummaryTable(table_name=chart.metric, **options)
    options |= {"title": chart.title, "groupby": wr.Config(METHOD), "groupby_aggfunc": "mean"}
    if chart.kind == "bar":
        return wr.BarPlot(metrics=[wr.SummaryMetric(chart.metric)], **options)
    return wr.LinePlot(x="round", y=[chart.metric], groupby_rangefunc="stddev", **options)


def main(words: Sequence[str]) -> int:
    """Print or create; exit code 0, or 2 for a user's mistake."""
    if not words:
        for title, charts in SECTIONS.items():
            print(title)
            for chart in charts:
                print(f"  {chart.title}: {chart.metric} ({chart.kind})")
        return 0
    if words[0] != "create" or not 2 <= len(words) <= 3:
        print(
            f"error: got {' '.join(words)!r}; expected nothing, or: create ENTITY [PROJECT]", file=sys.stderr
        )
        return 2
    try:
        made = report(*words[1:])
    except ImportError:
        print(
            "error: wandb_dashboard: needs the package wandb-workspaces. Install it: pip install wandb-workspaces "
            "(the extra `dashboard` of pyproject.toml).",
            file=sys.stderr,
        )
        return 2
    made.save()
    print(made.url)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

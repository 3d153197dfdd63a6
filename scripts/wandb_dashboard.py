"""The dashboard of tracked runs as code: a W&B report with test accuracy, worst group, loss, time and tables.

    python scripts/wandb_dashboard.py                         # prints what it consists of; needs nothing, sends nothing
    python scripts/wandb_dashboard.py create ENTITY [PROJECT]  # makes the report; needs `pip install wandb-workspaces`

The names of metrics are those that ``docs/many_runs.md`` lists.
"""

import sys
from collections.abc import Sequence
from typing import Any

PROJECT = "fedtables"
METHOD = "method.name"
"""Key of a run's configuration that curves are grouped by: a line per method, its spread over seeds and settings."""

LINES = {
    "Test accuracy": "test/accuracy",
    "Worst-group accuracy": "test/worst_group_accuracy",
    "Training loss": "train/loss",
    "Test loss": "test/loss",
}
"""Curves by round."""

BARS = {"Seconds per round": "seconds_per_round"}
"""Final values."""


def report(entity: str, project: str = PROJECT) -> Any:
    """The report as an object of ``wandb_workspaces``; nothing is sent. `ImportError` without that package."""
    import wandb_workspaces.reports.v2 as wr

    def section(title: str, job_types: str, panels: list[Any]) -> list[Any]:
        runs = wr.Runset(entity=entity, project=project, name=title, filters=f"JobType {job_types}")
        for number, panel in enumerate(panels):
            panel.layout = wr.Layout(x=number % 2 * 12, y=number // 2 * 10, w=12, h=10)
        return [wr.H2(text=title), wr.PanelGrid(runsets=[runs], panels=panels)]

    grouped = {"groupby": wr.Config(METHOD), "groupby_aggfunc": "mean"}
    panels = [
        wr.LinePlot(title=title, x="round", y=[metric], groupby_rangefunc="stddev", **grouped)
        for title, metric in LINES.items()
    ]
    for title, metric in BARS.items():
        panels.append(wr.BarPlot(title=title, metrics=[wr.SummaryMetric(metric)], **grouped))
    # Tables and figures have job types of their own; that of a run is the name of its method.
    blocks = section("Runs", "not in ['table', 'figure']", panels)
    blocks += section("Tables", "= 'table'", [wr.WeavePanelSummaryTable(table_name="table")])
    return wr.Report(entity=entity, project=project, title="FedTables", blocks=blocks, width="fluid")


def main(words: Sequence[str]) -> int:
    """Print or create; exit code 0, or 2 for a user's mistake."""
    if not words:
        for title, metric in {**LINES, **BARS, "Tables": "table"}.items():
            print(f"{title}: {metric}")
        return 0
    if words[0] != "create" or not 2 <= len(words) <= 3:
        print(f"error: got {' '.join(words)!r}; expected: create ENTITY [PROJECT]", file=sys.stderr)
        return 2
    try:
        made = report(*words[1:])
    except ImportError:
        print("error: install the package first: pip install wandb-workspaces", file=sys.stderr)
        return 2
    made.save()
    print(made.url)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""Plans a table's runs as the command line asks for them: seeds, chosen values, settings of all runs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmark.commands.arguments import positive
from benchmark.runs.plan import Cells, plan
from benchmark.runs.spec import TableSpec
from benchmark.runs.tuning import TunedFolder


def command(words: str, values: Mapping[str, str]) -> str:
    """The command line of ``words`` with what was said of seeds, results and chosen values."""
    said = [f"{key}={values[key]}" for key in ("seeds", "results", "tuned") if key in values]
    return " ".join(["python -m benchmark", words, *said])


def planned(
    whole: TableSpec,
    part: TableSpec,
    values: Mapping[str, str],
    preset: str,
    extra: Mapping[str, Any] | None = None,
) -> Cells:
    """The cells of ``part`` of a table, with values that were chosen for the ``whole``; ``extra`` goes on top of all.

    Reads ``seeds``, ``results`` and ``tuned`` of the command line. Raises `ConfigError` as they, or the plan, do.
    """
    count = positive(values, "seeds")
    tuned = TunedFolder.of(values.get("tuned"), Path(values.get("results", "results")))
    seeds = None if count is None else range(count)
    return plan(part, preset, seeds, extra, tuned.load(whole, preset))

"""``python -m benchmark show``: the configuration of a cell, and what set each of its values."""

from collections.abc import Sequence

from pydantic import Field

from benchmark.cli.options import parse
from benchmark.config.compose import explained_yaml
from benchmark.errors import ConfigError, wrong
from benchmark.experiments.selection import TableChoice, find_tables, plan_cells


class ShowOptions(TableChoice):
    """Options of the command."""

    row: str = Field("", title="KEY", description="key of the row")
    column: str = Field("", title="KEY", description="key of the column")


def main(words: Sequence[str]) -> int:
    """Print the configuration of a cell as YAML, with the file and line that set each value; exit code 0."""
    options = parse(words, "show", ShowOptions)
    tables = find_tables(options)
    if len(tables) > 1:
        names = ", ".join(spec.name for spec in tables)
        expected = f"one of {names} (paper and table, or name, choose it)"
        raise ConfigError(wrong("show", f"{len(tables)} tables", expected))
    spec = tables[0].cut([options.row], [options.column])
    ((_, cell),) = plan_cells(tables[0], spec, options).items()
    if not cell.runs:
        raise ConfigError(wrong("preset", options.preset, f"one in which column {cell.column} has runs"))
    keys = ", ".join(run.key for run in cell.runs)
    print(f"# table {spec.name}, row {cell.row}, column {cell.column}, preset {options.preset}: runs {keys}")
    print(explained_yaml(cell.plain))
    return 0

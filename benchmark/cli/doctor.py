"""``python -m benchmark doctor``: whether this machine, or a compute node, can do what its user wants."""

import shutil
import textwrap
from collections.abc import Iterator, Sequence

from benchmark.cli.options import LauncherOptions, launcher_settings, parse
from benchmark.doctor import CheckResult
from benchmark.doctor.checks import Wanted, lines_of_node
from benchmark.doctor.services import slurm
from benchmark.experiments.selection import TableQuery, find_tables
from benchmark.launch.settings import LocalSettings
from benchmark.launch.slurm.settings import SlurmSettings


class DoctorOptions(LauncherOptions, Wanted):
    """Options of the command."""


def main(words: Sequence[str]) -> int:
    """Print one line for each check; exit code 0, or 1 if there is a problem."""
    options = parse(words, "doctor", DoctorOptions)
    find_tables(TableQuery(paper=options.paper, table=1, preset=options.preset or "quick"))
    launcher = launcher_settings(options)
    states = []
    for line in _lines(options, launcher):
        states.append(line.state)
        print(shown(line), flush=True)
    print(f"{states.count('problem')} problems, {states.count('note')} notes")
    return int("problem" in states)


def _lines(options: DoctorOptions, settings: LocalSettings | SlurmSettings) -> Iterator[CheckResult]:
    scheduler = slurm(isinstance(settings, SlurmSettings))
    yield scheduler
    if isinstance(settings, LocalSettings):
        yield from options.lines(settings)
    elif scheduler.state != "problem":
        yield from lines_of_node(settings, options)


def shown(line: CheckResult) -> str:
    """A line within the width of the terminal, with the remedy on a line of its own."""
    width = shutil.get_terminal_size((80, 24)).columns
    text = textwrap.fill(f"{line.what:<10} {line.state:<7} {line.fact}", width, subsequent_indent=" " * 19)
    if line.remedy:
        text += "\n" + textwrap.fill(f"{' ' * 16}-> {line.remedy}", width, subsequent_indent=" " * 19)
    return text

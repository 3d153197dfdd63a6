"""The command line: words become options, which the functions of `benchmark.api` take."""

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import NamedTuple


class Command(NamedTuple):
    """What a command does, and its function."""

    text: str
    function: str

    @property
    def main(self) -> Callable[[Sequence[str]], int]:
        """The function, which takes the words behind the name and returns the exit code. Its module is imported now."""
        module, _, name = self.function.partition(":")
        main: Callable[[Sequence[str]], int] = getattr(import_module(f"benchmark.cli.{module}"), name)
        return main


GROUPS = {
    "make": {
        "run": Command("one run, or a sweep with -m", "make:run"),
        "table": Command("carry out the missing runs of tables and write the tables", "make:table"),
        "figure": Command("carry out the missing runs of figures and draw the figures", "make:figure"),
        "tune": Command("choose values on a validation split, which runs of tables take", "make:tune"),
        "report": Command("all tables of the results folder as one page for the browser", "make:report"),
    },
    "look": {
        "plan": Command("what tables still need: runs, hours on this device, disk, data, GPU", "look:plan"),
        "status": Command("how many runs are done, running, failed or missing", "look:status"),
        "runs": Command("the runs of a results folder by any setting: method=fed* state=failed", "look:runs"),
        "show": Command("the layers of settings of a cell of a table, and what they come to", "look:show"),
        "list": Command("what there is to choose from", "look:available"),
    },
    "prepare": {
        "data": Command(
            "which data sets there are, prepare one, count its images, show its clients", "data:main"
        ),
        "export": Command(
            "the body of a run, as a start of others; finished runs as an archive, or to W&B",
            "look:export",
        ),
    },
}

COMMANDS = {name: command for commands in GROUPS.values() for name, command in commands.items()}

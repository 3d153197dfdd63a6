"""The command line: words become options, which the functions of `benchmark.api` take."""

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import NamedTuple

Main = Callable[[Sequence[str]], int]
"""A command: takes the words behind its name and returns the exit code."""


class Command(NamedTuple):
    """What a command does, its function, and the words behind its name beside ``key=value``."""

    text: str
    function: str
    words: str = "[key=value ...]"

    @property
    def main(self) -> Main:
        """The function, whose module is imported now."""
        module, _, name = self.function.partition(":")
        main: Main = getattr(import_module(f"benchmark.cli.{module}"), name)
        return main


GROUPS = {
    "make": {
        "run": Command("one run, or a sweep with -m", "make:run", "[GROUP=NAME ...] [KEY=VALUE ...]"),
        "table": Command("carry out the missing runs of tables and write the tables", "make:table"),
        "figure": Command("carry out the missing runs of figures and draw the figures", "make:figure"),
        "tune": Command("choose values on a validation split, which runs of tables take", "make:tune"),
        "report": Command("all tables of the results folder as one page for the browser", "make:report"),
    },
    "look": {
        "plan": Command("what tables still need: runs, hours on this device, disk, data, GPU", "look:plan"),
        "status": Command("how many runs are done, running, failed or missing", "look:status"),
        "runs": Command(
            "the runs of a results folder by any setting: method=fed* train.lr=0.1 state=failed",
            "look:runs",
            "[KEY=VALUE ...] [--delete] [--purge] | import=FILE",
        ),
        "show": Command("the layers of settings of a cell of a table, and what they come to", "look:show"),
        "list": Command(
            "what there is to choose from",
            "look:available",
            "[methods|datasets|partitions|selections|models|rules|tables|figures|analyses]",
        ),
    },
    "prepare": {
        "data": Command(
            "which data sets there are, prepare one, count its images, show its clients",
            "data:main",
            "list|prepare|check|partition [key=value ...]",
        ),
        "export": Command(
            "the body of a run, which other runs start from; finished runs as an archive, or to W&B",
            "look:export",
            "RUN name=NAME | archive by=NAME [KEY=VALUE ...] | wandb",
        ),
    },
}

COMMANDS = {name: command for commands in GROUPS.values() for name, command in commands.items()}

GONE = {
    "analyse": "`table name=NAME` makes the tables of analyses, and `table --curves` the curves",
    "fidelity": "docs/fidelity.md has the differences between papers and code, with the measured effects of switches",
    "document": "`make docs` builds the pages",
    "partition": "`data partition` shows the clients of a partition",
    "verify": "`table` carries out again what is damaged",
    "checklist": "config.yaml and result.json in the folder of a run have what such a list asks for",
    "logs": "log.txt lies in the folder of a run, and the logs of workers in launches/ of the results folder",
    "retry": "the same command carries out again what has failed",
    "cancel": "Ctrl-C stops a launch here; on a cluster it says which `scancel` ends its tasks",
    "track": "`export wandb` sends finished runs that were not tracked",
    "bench": "`python scripts/bench/speed.py` measures the speed beside a bare loop",
    "doctor": "`plan` says what tables need before they are made",
}
"""Commands of earlier versions, and what takes their place."""

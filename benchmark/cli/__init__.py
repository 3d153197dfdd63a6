"""The command line: one file for each command."""

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import NamedTuple


class Command(NamedTuple):
    """What a command does, and the words behind its name beside ``key=value``."""

    text: str
    words: str = ""


COMMANDS = {
    "run": Command("one run, or a sweep with -m"),
    "table": Command("carry out the missing runs of tables and write the tables"),
    "tune": Command("grid search on a validation split; runs of tables take the chosen values"),
    "figure": Command("carry out the missing runs of figures and draw the figures"),
    "show": Command("the configuration of a cell of a table, and the file and line that set each value"),
    "report": Command("all tables of the results folder as one page for the browser"),
    "analyse": Command("an analysis of a paper", "NAME"),
    "plan": Command("what tables need before they are made: runs, hours on this device, disk, missing data"),
    "runs": Command(
        "the runs of a results folder by any setting: method=fed* train.lr=0.1 state=failed",
        "[KEY=VALUE ...] [--delete]",
    ),
    "status": Command(
        "how many runs are done, running, failed, diverged or missing, and what waits on a cluster"
    ),
    "export": Command(
        "the trained body of a run, as a file that other runs start from (model.start); or runs to W&B",
        "RUN name=NAME | wandb",
    ),
    "list": Command(
        "what there is to choose from",
        "[methods|datasets|partitions|selections|tables|figures|analyses|models|rules]",
    ),
    "data": Command(
        "which data sets there are, prepare one, count its images", "list|prepare|check dataset=NAME"
    ),
    "partition": Command("the clients of a partition as text and as a picture", "show"),
}
"""The command NAME is the function ``main`` of ``benchmark.cli.NAME``."""

GONE = {
    "document": "`make docs` builds the pages",
    "fidelity": "docs/fidelity.md has the differences between papers and code and the measured effects of switches",
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


def entry(name: str) -> Callable[[Sequence[str]], int]:
    """The function of the command ``name``: it takes the words behind the name and returns the exit code."""
    function: Callable[[Sequence[str]], int] = import_module(f"benchmark.cli.{name}").main
    return function

"""Command line: ``python -m benchmark COMMAND ...``. A user's mistake is one message and exit code 2."""

import sys
from collections.abc import Sequence
from importlib import import_module

COMMANDS = {
    "run": "one run, or a sweep with -m",
    "table": "carry out the missing runs of tables and write the tables",
    "tune": "grid search on a validation split; runs of tables take the chosen values",
    "figure": "carry out the missing runs of figures and draw the figures",
    "analyse": "NAME: an analysis of a paper (without a name: which there are)",
    "fidelity": "[check|effects] docs/fidelity.md: where paper, code and text disagree, and what a switch changes",
    "document": "[check] docs/methods.md: the table of methods, from their files",
    "track": "send to W&B what was not sent yet of runs, tables and figures (docs/wandb.md)",
    "plan": "what tables need before they are made: runs, hours on this device, disk, missing data",
    "status": "[--watch] how many runs are done, running, waiting, failed, diverged or missing",
    "verify": "[--repair] compare the files of runs with what was written, and set damaged runs aside",
    "logs": "RUN [--follow] what a run said, and the job that carried it out",
    "retry": "--failed: carry out the failed runs again",
    "cancel": "[--all] end what waits or runs on a cluster",
    "list": "[methods|datasets|partitions|selections|tables|figures|analyses|models|rules]",
    "data": "list | prepare NAME | check NAME: which data sets there are, prepare one, count its images",
    "partition": "show: the clients of a partition as text and as a picture",
    "bench": "speed and memory beside a bare PyTorch loop",
}
"""What each command does. It is the function ``main`` of ``benchmark.cli.COMMAND``, or that of its name in `JOBS`."""

JOBS = ("status", "logs", "retry", "cancel")
"""The commands of ``benchmark.cli.jobs``."""

USAGE = "\n".join(
    [
        "usage: python -m benchmark COMMAND [key=value ...]     (COMMAND --help: its options)",
        "",
        *(f"  {name:<10} {text}" for name, text in COMMANDS.items()),
    ]
)


def main(words: Sequence[str]) -> int:
    """Run one command; exit code 0, 1 (a run failed), 2 (user's mistake) or 130 (stopped)."""
    from benchmark.errors import ConfigError, UserError, wrong

    if not words or words[0] in ("-h", "--help", "help"):
        print(USAGE)
        return 0 if words else 2
    try:
        name = words[0]
        if name not in COMMANDS:
            raise ConfigError(wrong("command", name, f"one of: {', '.join(COMMANDS)}", known=COMMANDS))
        module = import_module(f"benchmark.cli.{'jobs' if name in JOBS else name}")
        code: int = getattr(module, name if name in JOBS else "main")(words[1:])
        return code
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
        return 130
    except BrokenPipeError:
        return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

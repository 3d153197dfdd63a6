"""From the words of a command line to the function of the command; a user's mistake becomes one message."""

import contextlib
import sys
from collections.abc import Sequence

from benchmark import paths
from benchmark.cli import COMMANDS, GROUPS
from benchmark.code import place_of
from benchmark.errors import ConfigError, Stopped, UserError, printable, wrong
from benchmark.system import explain

USAGE = "\n".join(
    [
        "usage: python -m benchmark COMMAND [key=value ...]     (COMMAND --help: its options)",
        *(
            line
            for group, commands in GROUPS.items()
            for line in (
                "",
                f"{group}:",
                *(f"  {name:<8} {command.text}" for name, command in commands.items()),
            )
        ),
    ]
)


def main(argv: Sequence[str]) -> int:
    """Run one command; its exit code.

    0, 1 (a run failed), 2 (user's mistake, or something that the system refuses), 130 (stopped) or 141 (nobody reads
    the output).
    """
    try:
        try:
            return _dispatch(argv)
        finally:
            sys.stdout.flush()
    except Stopped as stopped:
        if str(stopped):
            print(stopped)
        return 130
    except KeyboardInterrupt:
        _print_error("stopped")
        return 130
    except UserError as error:
        _print_error(f"error: {error}")
        return 2
    except BrokenPipeError:
        return 141
    except Exception as error:
        message = explain(error, "the output")
        if message is None and (place := place_of(error)):
            message = f"{type(error).__name__}: {error} ({place})"
        if message is None:
            raise
        _print_error(f"error: {message}")
        return 2


def _dispatch(argv: Sequence[str]) -> int:
    if not argv or argv[0] in ("-h", "--help", "help"):
        print(USAGE)
        return 0 if argv else 2
    name = argv[0]
    if name not in COMMANDS:
        raise ConfigError(wrong("command", name, f"one of: {', '.join(COMMANDS)}", known=COMMANDS))
    paths.require_usable()
    return COMMANDS[name].main(list(argv[1:]))


def _print_error(line: str) -> None:
    with contextlib.suppress(OSError):  # standard error may be closed
        print(printable(line), file=sys.stderr, flush=True)

"""Command line: ``python -m benchmark COMMAND ...``. A user's mistake is one message and exit code 2."""

import contextlib
import io
import os
import sys
from collections.abc import Sequence


def main(argv: Sequence[str]) -> int:
    """Run one command; its exit code.

    0, 1 (a run failed), 2 (user's mistake, or something that the system refuses), 130 (stopped) or 141 (nobody reads
    the output).
    """
    try:
        from benchmark.cli.main import main as run_command  # the first imports can be stopped as well

        return run_command(argv)
    except KeyboardInterrupt:
        _print_error("stopped")
        return 130


def _print_error(line: str) -> None:
    with contextlib.suppress(OSError):  # the terminal may be closed
        print(line, file=sys.stderr, flush=True)


def start() -> int:
    """`main` in a process of its own, whatever its standard streams are."""
    if sys.stdout is None:
        _print_error("error: standard output is closed. Redirect it to a file or to /dev/null.")
        return 2
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # an encoding may lack what a name has
    code = main(sys.argv[1:])
    try:
        sys.stdout.flush()
    except OSError:  # the interpreter would try it once more
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return code


if __name__ == "__main__":
    sys.exit(start())

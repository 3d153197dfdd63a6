"""Command line: ``python -m benchmark COMMAND ...``. A user's mistake is one message and exit code 2."""

import io
import os
import sys

from benchmark.cli.main import main


def start() -> int:
    """`main` in a process of its own, whatever its standard streams are."""
    if sys.stdout is None:
        print("error: standard output is closed. Redirect it to a file or to /dev/null.", file=sys.stderr)
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

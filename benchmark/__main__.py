"""Command line: ``python -m benchmark COMMAND ...``. A user's mistake is one message and exit code 2."""

import contextlib
import io
import os
import sys
from collections.abc import Sequence

from benchmark.cli import COMMANDS, entry

HELP = {"-h", "--help"}

USAGE = "\n".join(
    [
        "usage: python -m benchmark COMMAND [key=value ...]     (COMMAND --help: its options)",
        "",
        *(f"  {name:<10} {words}{': ' * bool(words)}{text}" for name, (text, words) in COMMANDS.items()),
    ]
)


def main(words: Sequence[str]) -> int:
    """Run one command; its exit code.

    0, 1 (a run failed), 2 (user's mistake, or something that the system refuses), 130 (stopped) or 141 (nobody reads
    the output).
    """
    try:
        return _answered(words)
    except KeyboardInterrupt:  # perhaps during the first imports
        _say("stopped")
        return 130


def _answered(words: Sequence[str]) -> int:
    from benchmark.errors import UserError
    from benchmark.system import explain

    try:
        try:
            return _carry_out(words)
        finally:
            sys.stdout.flush()
    except UserError as error:
        _say(f"error: {error}")
        return 2
    except BrokenPipeError:
        return 141
    except Exception as error:
        message = explain(error, "the output")
        if message is None:
            raise
        _say(f"error: {message}")
        return 2


def _carry_out(words: Sequence[str]) -> int:
    from benchmark.errors import ConfigError, wrong
    from benchmark.paths import require_packages, require_repositories, take_config_dir
    from benchmark.system import OPEN_FILES, require_open_files

    if not words or words[0] in HELP | {"help"}:
        print(USAGE)
        return 0 if words else 2
    name = words[0]
    if name not in COMMANDS:
        raise ConfigError(wrong("command", name, f"one of: {', '.join(COMMANDS)}", known=COMMANDS))
    # Those that come after analyse NAME and partition show are read by the commands themselves.
    asked = HELP & set(words[1:] if name in ("list", "data") else words[1:2])
    if asked and name in ("analyse", "list", "data", "partition"):
        text, expected = COMMANDS[name]
        print(f"usage: python -m benchmark {name} {expected}\n\n{text}")
        return 0
    require_open_files(OPEN_FILES)
    require_packages()
    require_repositories()
    return entry(name)(take_config_dir(words[1:]))


def _say(line: str) -> None:
    from benchmark.errors import printable

    with contextlib.suppress(OSError):  # the terminal may be closed
        print(printable(line), file=sys.stderr, flush=True)


def start() -> int:
    """`main` in a process of its own, whatever its standard streams are."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:  # otherwise the next file that is opened would get what is printed
            os.open(os.devnull, os.O_RDWR)
    if sys.stdout is None:
        _say("error: standard output is closed. Redirect it to a file or to /dev/null.")
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

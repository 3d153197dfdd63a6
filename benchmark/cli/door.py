"""From the words of a command line to the function of the command; a user's mistake becomes one message."""

import contextlib
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmark import paths
from benchmark.cli import COMMANDS, GONE, entry
from benchmark.code import place_of
from benchmark.errors import ConfigError, UserError, printable, wrong
from benchmark.system import explain

HELP = {"-h", "--help"}

USAGE = "\n".join(
    [
        "usage: python -m benchmark COMMAND [key=value ...]     (COMMAND --help: its options)",
        "",
        *(f"  {name:<10} {words}{': ' * bool(words)}{text}" for name, (text, words) in COMMANDS.items()),
    ]
)


def answer(words: Sequence[str]) -> int:
    """Run one command; its exit code. `benchmark.__main__.main` lists them."""
    try:
        try:
            return _carry_out(words)
        finally:
            sys.stdout.flush()
    except UserError as error:
        say(f"error: {error}")
        return 2
    except BrokenPipeError:
        return 141
    except Exception as error:
        message = explain(error, "the output")
        if message is None and (place := place_of(error)):
            message = f"{type(error).__name__}: {error} ({place})"
        if message is None:
            raise
        say(f"error: {message}")
        return 2


def _carry_out(words: Sequence[str]) -> int:
    if not words or words[0] in HELP | {"help"}:
        print(USAGE)
        return 0 if words else 2
    name = words[0]
    if name in GONE:
        raise ConfigError(f"the command {name} is gone: {GONE[name]}.")
    if name not in COMMANDS:
        raise ConfigError(wrong("command", name, f"one of: {', '.join(COMMANDS)}", known=COMMANDS))
    # Those that come after analyse NAME and partition show are read by the commands themselves.
    asked = HELP & set(words[1:] if name in ("list", "data") else words[1:2])
    if asked and name in ("analyse", "list", "data", "partition"):
        text, expected = COMMANDS[name]
        print(f"usage: python -m benchmark {name} {expected}\n\n{text}")
        return 0
    paths.require_usable()
    return entry(name)(take_config_dir(words[1:]))


def take_config_dir(words: Sequence[str]) -> list[str]:
    """Words of a command without ``--config-dir DIR``, which is searched for configuration files as well."""
    rest = list(words)
    for place, word in enumerate(words):
        option, equals, folder = word.partition("=")
        if option == "--config-dir":
            path = Path(folder if equals else "".join(words[place + 1 : place + 2]))
            if not path.is_dir() or not path.name:
                raise ConfigError(wrong("--config-dir", str(path), "a folder like conf/"))
            if path.resolve() not in paths.CONF_FOLDERS:
                paths.CONF_FOLDERS.insert(0, path.resolve())
            del rest[place : place + (1 if equals else 2)]
            break
    return rest


def say(line: str) -> None:
    """Print a line to standard error, which may be closed."""
    with contextlib.suppress(OSError):
        print(printable(line), file=sys.stderr, flush=True)

"""Commands that a user gives in a folder, and a repository of one's own whose method fails as it is told."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import yaml
from processes import wait_until

from benchmark.runs.folder import ResultsFolder

ROOT = Path(__file__).resolve().parents[2]

METHOD = '''"""FedAvg with momentum at the server, and with accidents."""

import os
import time
from pathlib import Path
from typing import Literal

from methods.core.rules import Post, register


@register("post", "fragile")
class Fragile(Post):
    """In a run with ``clients`` clients: an error, the end of the process, or a wait while there is a file ``hold``."""

    how: Literal["", "raise", "kill", "hold", "slow"] = ""
    clients: int = 0
    round: int = 0

    def apply(self, w, dbar, view, state):
        place = Path(os.environ["TOY"])
        with (place / f"at-{view.round}").open("a") as stream:
            stream.write(f"{view.num_clients} {os.getpid()}\\n")
        if view.round >= self.round and self.clients in (0, view.num_clients):
            if self.how == "raise":
                raise ArithmeticError("two and two are five")
            if self.how == "kill":
                os.kill(os.getpid(), 9)
            while self.how == "hold" and (place / "hold").exists():
                time.sleep(0.01)
            if self.how == "slow" and (place / "hold").exists():
                time.sleep(0.1)
        return 1.0 * w, state
'''


class Command:
    """``python -m benchmark WORDS`` in a folder, in a process group of its own."""

    def __init__(self, folder: Path, words: Iterable[str], environment: Mapping[str, str]) -> None:
        self.log = folder / f"command-{time.monotonic_ns()}.txt"
        with self.log.open("w") as stream:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "benchmark", *words],
                cwd=folder,
                env=os.environ | {"PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"} | environment,
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def output(self) -> str:
        return self.log.read_text()

    def wait(self, code: int = 0) -> str:
        """Its output, once it has ended with ``code``."""
        wait_until(lambda: self.process.poll() is not None, f"the end of the command of {self.log}", 600)
        assert self.process.returncode == code, self.output
        return self.output

    def says(self, text: str) -> None:
        """Wait until it has printed a text."""
        wait_until(lambda: text in self.output or self.process.poll() is not None, f"{text!r} in {self.log}")
        assert text in self.output, self.output


@dataclass(frozen=True)
class Desk:
    """A folder in which a user gives commands, with a repository and with results below it."""

    folder: Path
    commands: list[Command] = field(default_factory=list)

    @property
    def results(self) -> ResultsFolder:
        return ResultsFolder(self.folder / "results")

    def prepare(
        self, clients: Iterable[int], *, how: str = "", at: int = 0, round: int = 0, rounds: int = 3
    ) -> None:
        """Write the repository: a table of one row with a column for each number of clients.

        ``how``: what happens to the run of ``at`` clients in a round (0: to all runs).
        """
        method = {"name": "fragile", "server": {"post": {"name": "fragile"}}}
        method["server"]["post"] |= {"how": how, "clients": at, "round": round}
        method["server"]["optimizer"] = {"name": "momentum", "beta": 0.5, "lr": 1.0}
        dataset = {"name": "fake", "options": {"classes": 4, "train_size": 96, "test_size": 40}}
        train = {"rounds": rounds, "batch_size": 8}
        table = {
            "title": "Toy",
            "metric": "accuracy",
            "seeds": 1,
            "overrides": [{"dataset": dataset, "train": train, "model": "tiny_mlp"}],
            "rows": [{"key": "fragile", "label": "Fragile", "method": "fragile"}],
            "columns": [
                {"key": f"c{number}", "label": str(number), "partition": {"name": "iid", "clients": number}}
                for number in clients
            ],
        }
        files = {
            "methods/fragile.py": METHOD,
            "conf/method/fragile.yaml": yaml.safe_dump(method),
            "conf/table/toy.yaml": yaml.safe_dump(table),
        }
        for name, text in files.items():
            path = self.folder / "mine" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)

    def edit(self, old: str = "1.0 * w", new: str = "0.5 * w") -> None:
        """Change the code of the method."""
        path = self.folder / "mine" / "methods" / "fragile.py"
        text = path.read_text()
        assert old in text
        path.write_text(text.replace(old, new))

    def give(self, *words: str, **environment: str) -> Command:
        """Give a command."""
        toy = {"TOY": str(self.folder), "FEDTABLES_PATH": str(self.folder / "mine")}
        command = Command(self.folder, words, toy | environment)
        self.commands.append(command)
        return command

    def table(self, *words: str, **environment: str) -> Command:
        """Make the table of the repository, with two workers unless words say otherwise."""
        workers = () if any("launcher=" in word for word in words) else ("workers=2",)
        return self.give("table", "name=toy", *workers, *words, **environment)

    def hold(self) -> Path:
        """The file that makes runs wait."""
        path = self.folder / "hold"
        path.touch()
        return path

    def at_work(self, round: int) -> dict[int, list[int]]:
        """The processes that have come to a round, by number of clients."""
        found: dict[int, list[int]] = {}
        with suppress(FileNotFoundError):
            for line in (self.folder / f"at-{round}").read_text().splitlines():
                clients, pid = map(int, line.split())
                found.setdefault(clients, []).append(pid)
        return found

    def finished(self) -> dict[str, tuple[bytes, str]]:
        return finished(self.results)

    def csv(self) -> bytes:
        """The table."""
        return (self.folder / "results/tables/quick/toy.csv").read_bytes()


def finished(results: ResultsFolder) -> dict[str, tuple[bytes, str]]:
    """Records and digest of the model of every run, by key. All are finished, and nothing else lies beside them."""
    found = {}
    for key in results.run_keys():
        folder = results.run(key)
        result = folder.check()
        assert result is not None and result.state == "done", key
        assert [path.name for path in folder.path.parent.iterdir()] == [folder.path.name]
        kept = {"config.yaml", "result.json", "records.jsonl", "log.txt"}
        assert {path.name for path in folder.path.iterdir()} == kept
        found[key] = (folder.path / "records.jsonl").read_bytes(), result.model_sha256
    return found


@contextmanager
def desk(folder: Path) -> Iterator[Desk]:
    """A desk that is left clean: no command goes on behind the test."""
    it = Desk(folder)
    folder.mkdir(parents=True, exist_ok=True)
    try:
        yield it
    finally:
        for command in it.commands:
            with suppress(ProcessLookupError):
                os.killpg(command.process.pid, signal.SIGKILL)
            command.process.wait()

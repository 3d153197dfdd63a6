"""Programs of SLURM that do as they are told."""

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from processes import executable


@dataclass(frozen=True)
class FakeQueue:
    """A folder first on PATH. ``queue`` holds what `squeue` prints; each array that is submitted is a script.

    ``refusal``: if there is this file, `sbatch` prints it and refuses.
    """

    folder: Path

    @property
    def scripts(self) -> list[str]:
        """What was submitted."""
        paths = sorted(self.folder.glob("script-*"), key=lambda path: int(path.name[7:]))
        return [path.read_text() for path in paths]

    @property
    def options(self) -> dict[str, str]:
        """Those of the last array, by name."""
        return dict(re.findall(r"^#SBATCH --([a-z-]+)=(.*)$", self.scripts[-1], re.MULTILINE))

    def hold(self, job: str, tasks: int, state: str = "PENDING") -> None:
        """Have the tasks of a job in the queue."""
        (self.folder / "queue").write_text("".join(f"{job}_{index}|{state}\n" for index in range(tasks)))

    def refuse(self, message: str) -> None:
        (self.folder / "refusal").write_text(message)


def fake_queue(folder: Path, monkeypatch: Any) -> FakeQueue:
    """An empty queue."""
    executable(folder / "squeue", f"cat {folder}/queue")
    executable(folder / "srun", "exit 1")
    executable(
        folder / "sbatch",
        f"""test -e {folder}/refusal && cat {folder}/refusal >&2 && exit 1
number=$(ls {folder} | grep -c script-)
cp "$1" {folder}/script-$number
echo Submitted batch job $((70 + number))""",
    )
    (folder / "queue").touch()
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    return FakeQueue(folder)

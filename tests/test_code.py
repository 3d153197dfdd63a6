"""What counts as the code of a run, and the snapshot of all code that processes run from."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
from command_line import FAKE_RUN
from edited_code import Edit, edited  # noqa: F401

from benchmark import code
from benchmark.launch.local import environment
from benchmark.paths import ROOT
from methods.feddc import FedDC

FILES = {
    "methods/toy_alg.py": (
        "import math\nfrom .toy_near import near\nimport partitions.toy_far\nimport outside\n"
        'class Rule:\n    """A rule."""\n    files = ("toy.csv",)\n'
        "    def hook(self):\n        from methods.toy_late import late  # in a function\n"
    ),
    "methods/toy_near.py": "from methods.core.rules import Rule\nfrom . import toy_deep\nnear = 1\n",
    "methods/toy_deep.py": "deep = 1\n",
    "methods/toy_late.py": "late = 1\n",
    "methods/toy_unused.py": "unused = 1\n",
    "methods/toy.csv": "1,2\n",
    "partitions/toy_far.py": "far = 1\n",
    "outside.py": "far = 1\n",
    "docs/page.md": "words",
    "tests/test_it.py": "def test_it(): pass\n",
    "results/runs/mine.txt": "a result",
    "conf/method/toy.yaml": "name: toy\n",
}

OWN = {
    *("methods/toy_alg.py", "methods/toy_near.py", "methods/toy_deep.py", "methods/toy_late.py"),
    *("methods/toy.csv", "partitions/toy_far.py"),
}

Repository = Callable[[str, str], None]


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Repository]:
    """A repository of the user; ``write(name, text)`` puts a file into it, as the next process finds it."""
    place = tmp_path / "repository"

    def write_file(name: str, text: str) -> None:
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_text(text)
        forget()

    for name, text in FILES.items():
        write_file(name, text)
    monkeypatch.setattr(code, "ROOTS", [place, ROOT])
    yield write_file
    monkeypatch.undo()
    forget()


def forget() -> None:
    for known in (code.file_digest, code._reached, code._state):
        known.cache_clear()


def own_of_toy() -> dict[str, str]:
    return code.own_digests(type("Rule", (), {"__module__": "methods.toy_alg", "files": ("toy.csv",)}))


# Digests -----------------------------------------------------------------------------------------------------------


def changed(digests: Mapping[str, str]) -> list[str]:
    """Those of the files that have another digest now."""
    return [name for name, digest in digests.items() if code.file_digest(name) != digest]


def test_whatever_a_rule_imports_or_reads_is_its_own(write: Repository) -> None:
    """Absolute and relative imports, at the top or in a function, and data. The engine and other packages are not."""
    own = own_of_toy()
    assert set(own) == OWN | {"methods/__init__.py"} and all(own.values()) and changed(own) == []


@pytest.mark.parametrize("name", sorted(OWN))
def test_an_edit_of_each_is_seen(write: Repository, name: str) -> None:
    own = own_of_toy()
    write(name, FILES[name] + ("3,4\n" if name.endswith(".csv") else "other = 2\n"))
    assert changed(own) == [name]


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ('"""Words."""\ndeep = 1  # a comment\n', True),
        ("\n\ndeep  =  1", True),
        ("deep = 2\n", False),
        ("deep = (1\n", False),
    ],
    ids=["comments", "layout", "value", "not Python"],
)
def test_comments_docstrings_and_layout_do_not_count(write: Repository, text: str, same: bool) -> None:
    own = own_of_toy()
    write("methods/toy_deep.py", text)
    assert changed(own) == ([] if same else ["methods/toy_deep.py"])


def test_the_engine_is_one_digest_for_all_methods(edited: Edit) -> None:  # noqa: F811
    own, engine = code.own_digests(FedDC), code.engine_digest()
    assert {"methods/feddc.py", "methods/scaffold.py"} <= set(own)
    assert not any(path.startswith("methods/core") for path in own)
    edited("methods/scaffold.py", "\nimport ", "\nimport math\nimport ")
    assert code.own_digests(FedDC) != own and code.engine_digest() == engine
    edited("benchmark/engine/training.py", "\nimport ", "\nimport this\nimport ")
    assert code.engine_digest() != engine


# Snapshots ---------------------------------------------------------------------------------------------------------


def test_a_snapshot_has_all_code_and_is_made_once_for_each_content(tmp_path: Path, write: Repository) -> None:
    place = code.snapshot(tmp_path / "code")
    mine, checkout = code.roots_of(place)
    there = {path.relative_to(mine).as_posix() for path in mine.rglob("*") if path.is_file()}
    assert there == {name for name in FILES if name.partition("/")[0] in ("methods", "partitions", "conf")}
    kept = {path.name for path in checkout.iterdir()}
    assert {"benchmark", "methods", "partitions", "datasets", "conf", "results"} <= kept
    assert not {"docs", "tests", ".git"} & kept
    assert {path.name for path in (checkout / "results").iterdir()} <= {"published", "tuned", "weights"}
    about = json.loads((place / code.NOTE).read_text())
    assert {"commit", "dirty", "repositories", "diff", "untracked"} == about.keys()

    before = place.stat().st_mtime_ns
    assert code.snapshot(tmp_path / "code") == place and place.stat().st_mtime_ns == before
    write("methods/toy_deep.py", "deep = 2\n")
    other = code.snapshot(tmp_path / "code")
    assert other != place and (mine / "methods/toy_deep.py").read_text() == "deep = 1\n"
    write("methods/toy_deep.py", "deep = 1\n")
    write("docs/page.md", "other words")
    assert code.snapshot(tmp_path / "code") == place
    assert sorted(path.name for path in (tmp_path / "code").iterdir()) == sorted([place.name, other.name])


def test_git_says_what_a_snapshot_has_and_from_where(tmp_path: Path, write: Repository) -> None:
    """Ignored files stay out. Tracked files with changes, and new ones, are noted."""
    repository = tmp_path / "repository"
    git = ["git", "-C", str(repository), "-c", "user.name=x", "-c", "user.email=x@example.org"]
    write(".gitignore", "methods/toy_unused.py\n")
    write("conf/words.txt", "words")
    for words in (["init", "-q"], ["add", "-A"], ["commit", "-q", "-m", "all"]):
        subprocess.run([*git, *words], check=True)
    write("methods/toy_deep.py", "deep = 'changed'\n")
    write("methods/toy_new.py", "new = 1\n")
    write("images/raw.txt", "of many gigabytes")
    (repository / "conf/words.txt").write_bytes(b"caf\xe9")  # not UTF-8
    place = code.snapshot(tmp_path / "code")
    mine, _ = code.roots_of(place)
    assert not (mine / "methods/toy_unused.py").exists() and (mine / "methods/toy_new.py").exists()
    assert not (mine / "images").exists()
    about = json.loads((place / code.NOTE).read_text())
    assert (
        about["dirty"]
        and "+deep = 'changed'" in about["diff"]
        and "methods/toy_new.py" in about["untracked"][0]
    )
    commit = subprocess.run([*git, "rev-parse", "HEAD"], capture_output=True, text=True, check=True).stdout
    assert about["repositories"] == {str(repository): commit.strip()}


def test_a_process_runs_from_a_snapshot(tmp_path: Path) -> None:
    """It names the snapshot in its result. In another results folder it is the same one."""
    place = code.snapshot(tmp_path / "earlier" / "code")
    words = [sys.executable, "-P", "-m", "benchmark", *FAKE_RUN, f"paths.results={tmp_path / 'results'}"]
    done = subprocess.run(
        words, cwd=tmp_path, env=os.environ | environment(place), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    (path,) = (tmp_path / "results" / "runs").glob("*/seed*/result.json")
    assert json.loads(path.read_text())["made"]["code"] == place.name
    assert [path.name for path in (tmp_path / "results" / "code").iterdir()] == [place.name]

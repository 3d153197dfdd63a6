"""The files beside the code: citation, containers, hooks before a commit, forms for issues."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from processes import executable

ROOT = Path(__file__).resolve().parent.parent
DOCKERFILE = (ROOT / "Dockerfile").read_text()
APPTAINER = (ROOT / "fedtables.def").read_text()
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def content(name: str) -> Any:
    return yaml.safe_load((ROOT / name).read_text())


def test_citation() -> None:
    """The required fields of CFF 1.2.0; its references are the papers of the README, by title, year and venue."""
    cited = content("CITATION.cff")
    assert {"cff-version", "message", "title", "authors"} <= set(cited) and cited["cff-version"] == "1.2.0"
    assert cited["authors"] == [{"name": "The FedTables authors"}]
    assert (cited["version"], cited["license"]) == (PROJECT["version"], PROJECT["license"])
    papers = re.findall(r"^\| `fed\w+` \| (.+) \| (.+) \|$", (ROOT / "README.md").read_text(), re.MULTILINE)
    assert [paper["title"] for paper in cited["references"]] == [title for title, _ in papers]
    for paper, (_, venue) in zip(cited["references"], papers, strict=True):
        assert {"type", "title", "authors", "year"} <= set(paper)
        assert str(paper["year"]) in venue
        assert all(set(author) == {"given-names", "family-names"} for author in paper["authors"])
        if paper["type"] == "conference-paper":
            assert paper["conference"]["name"] == venue
        else:
            assert paper["journal"]


# Containers ----------------------------------------------------------------------------------------


def table1_of_make(folder: Path) -> list[str]:
    """The command of `make table1`, after the interpreter."""
    shown = subprocess.run(
        ["make", "-C", str(folder), "--no-print-directory", "-n", "table1"],
        capture_output=True, text=True, check=True, env={"PATH": os.environ["PATH"]},
    ).stdout  # fmt: skip
    return shlex.split(shown.splitlines()[-1])[1:]


def test_containers_run_what_make_table1_runs() -> None:
    wanted = table1_of_make(ROOT)
    parts = re.findall(r"^(?:ENTRYPOINT|CMD) (\[.*\])$", DOCKERFILE, re.MULTILINE)
    entry, words = map(json.loads, parts)
    assert entry == ["/fedtables/.venv/bin/python", *wanted[:2]] and words == wanted[2:]
    assert f"set -- {' '.join(wanted[2:])}\n" in APPTAINER
    assert f'exec {" ".join(entry)} "$@"' in APPTAINER


def test_containers_have_a_python_that_fits_and_install_the_lock() -> None:
    oldest = tuple(map(int, re.findall(r"\d+", PROJECT["requires-python"])))
    found = re.findall(r"^(?:FROM|From:) python:(\d+)\.(\d+)-slim$", DOCKERFILE + APPTAINER, re.MULTILINE)
    assert len(found) == 2 and len(set(found)) == 1 and tuple(map(int, found[0])) >= oldest
    for text in (DOCKERFILE, APPTAINER):
        assert "python scripts/setup_environment.py\n" in text
        assert not re.search(r"index-url|https?://|pip install", text)


def test_what_the_dockerfile_copies_is_enough_to_set_up(tmp_path: Path) -> None:
    """The set-up script in a folder with only what is copied before it; `uv` just says how it was called."""
    before = DOCKERFILE.partition("RUN PIP_NO_CACHE_DIR")[0]
    for sources, target in re.findall(r"^COPY (.+) (\S+)$", before, re.MULTILINE):
        (tmp_path / target).mkdir(exist_ok=True)
        for source in sources.split():
            shutil.copy(ROOT / source, tmp_path / target)
    for name in re.findall(r'"((?:README|LICENSE)[^"]*)"', (ROOT / "pyproject.toml").read_text()):
        assert (tmp_path / name).is_file(), "what the metadata of the package read"
    uv = tmp_path / "bin" / "uv"
    executable(uv, '[ "$1" = pip ] && echo "$@"\nexit 0')
    path = f"{uv.parent}:{os.environ['PATH']}"
    command = [sys.executable, "scripts/setup_environment.py"]
    done = subprocess.run(
        command, cwd=tmp_path, env=os.environ | {"PATH": path}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert (
        f"--require-hashes --python {tmp_path}/.venv/bin/python {tmp_path}/requirements.lock" in done.stderr
    )


def test_docker_ignores_what_git_ignores() -> None:
    """Nothing that git tracks stays out of the image, and nothing that a checkout's use leaves behind goes in."""

    def lines(name: str) -> set[str]:
        return {line for line in (ROOT / name).read_text().splitlines() if line and not line.startswith("#")}

    def docker(line: str) -> str:
        sign, name = re.fullmatch(r"(!?)(.*?)/?", line).groups()  # type: ignore[union-attr]
        if name.startswith("/"):  # git: from the root; Docker: every name is
            return f"{sign}{name[1:]}"
        return f"{sign}{name if sign else '**/' + name}"

    wanted = {docker(line.replace("!/", "!")) for line in lines(".gitignore")}
    assert lines(".dockerignore") == wanted


# Hooks and forms -----------------------------------------------------------------------------------


def test_hooks_call_tools_that_make_check_calls() -> None:
    (repository,) = content(".pre-commit-config.yaml")["repos"]
    assert repository["repo"] == "local"
    makefile = (ROOT / "Makefile").read_text()
    hooks = {hook["id"]: hook for hook in repository["hooks"]}
    assert set(hooks) == {"ruff-format", "ruff-check", "check-sizes", "mypy"}
    for hook in hooks.values():
        python, *words = hook["entry"].split()
        assert (python, hook["language"]) == (".venv/bin/python", "system")
        assert f"$(RUN) {' '.join(words)}" in makefile
    assert [name for name, hook in hooks.items() if hook.get("stages") == ["pre-push"]] == ["mypy"]


@pytest.mark.parametrize("name", ["wrong_number", "bug", "new_method"])
def test_forms_for_issues(name: str) -> None:
    form = content(f".github/ISSUE_TEMPLATE/{name}.yml")
    assert form["name"] and form["description"]
    fields = form["body"]
    assert len({field["id"] for field in fields}) == len(fields)
    assert {field["type"] for field in fields} <= {"input", "textarea"}
    assert all(field["attributes"]["label"] for field in fields)
    assert any(field.get("validations", {}).get("required") for field in fields)

"""The shape of the project: who imports whom, what a file may hold, and what `make` does."""

from __future__ import annotations

import ast
import fcntl
import hashlib
import io
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
import time
import tokenize
import tomllib
import types
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import hydra
import numpy as np
import pytest
import torch
import yaml
from omegaconf import OmegaConf

from methods.core import rules

ROOT = Path(__file__).resolve().parent.parent
OURS = ("benchmark", "datasets", "methods", "partitions", "scripts")
LONGEST_FUNCTION = 60

# Reading the source ------------------------------------------------------------------------------


def project_files() -> list[Path]:
    """Files that git tracks, or would with `git add .`; every file where git or its folder is missing."""
    command = ["git", "-C", str(ROOT), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        listed = subprocess.run(command, capture_output=True, check=True, text=True).stdout
        paths = [ROOT / name for name in listed.split("\0") if name]
    except (OSError, subprocess.CalledProcessError):
        made = {".venv", ".git", ".cache", "__pycache__", "runs", "tables", ".mypy_cache", ".ruff_cache"}
        paths = [path for path in ROOT.rglob("*") if not made & set(path.relative_to(ROOT).parts)]
    return sorted(path for path in paths if path.is_file())


@cache
def sources() -> dict[str, Path]:
    """Every module of ours by its dotted name, tests left out."""
    found = {}
    for path in project_files():
        parts = path.relative_to(ROOT).with_suffix("").parts
        if path.suffix == ".py" and parts[0] in OURS:
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    assert {"benchmark", "datasets", "methods", "partitions"} <= found.keys()
    return found


def parse(path: Path) -> ast.Module:
    return ast.parse(path.read_text(), str(path))


def code_lines(path: Path) -> set[int]:
    """Numbers of the lines that hold code: no blank lines, comments or docstrings."""
    skip = {
        tokenize.COMMENT,
        tokenize.NL,
        tokenize.NEWLINE,
        tokenize.INDENT,
        tokenize.DEDENT,
        tokenize.ENDMARKER,
    }
    lines: set[int] = set()
    text = path.read_text()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in skip:
            lines.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(text)):
        if (
            isinstance(node, ast.Expr)
            and isinstance(node.value, ast.Constant)
            and isinstance(node.value.value, str)
        ):
            lines.difference_update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return lines


def test_import_datasets_is_ours() -> None:
    code = "import datasets; print(datasets.__file__)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert Path(done.stdout.strip()) == ROOT / "datasets" / "__init__.py"
    import datasets

    assert Path(str(datasets.__file__)) == ROOT / "datasets" / "__init__.py"


# Code --------------------------------------------------------------------------------------------


def test_no_function_is_long() -> None:
    too_long = []
    for module, path in sources().items():
        lines = code_lines(path)
        for node in ast.walk(parse(path)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                length = len(lines & set(range(node.lineno, (node.end_lineno or node.lineno) + 1)))
                if length > LONGEST_FUNCTION:
                    too_long.append(f"{module}.{node.name}: {length} lines of code")
    assert not too_long


def test_backward_stands_in_one_place() -> None:
    calls = [
        path.relative_to(ROOT).as_posix()
        for path in sources().values()
        for node in ast.walk(parse(path))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "backward"
    ]
    # The second one trains nothing that is kept: it is the bare loop that `make bench` measures runs against.
    assert sorted(calls) == ["benchmark/bench/speed.py", "benchmark/engine/training.py"]


# Files -------------------------------------------------------------------------------------------


def conf_files() -> list[str]:
    files = [path.relative_to(ROOT).as_posix() for path in project_files()]
    return [name for name in files if name.startswith("conf/")]


@pytest.mark.parametrize("name", conf_files())
def test_configuration_is_plain_yaml(name: str) -> None:
    path = ROOT / name
    assert path.suffix == ".yaml", "only .yaml files belong into conf/"
    content = yaml.safe_load(path.read_text())
    assert isinstance(content, dict) and content
    hydras = path.parent.name == "conf" or name.startswith("conf/hydra/")
    if "# @package _global_" not in path.read_text() and not hydras:
        # One group's file is read without Hydra too (by table plans), so nothing in it may need Hydra.
        assert "defaults" not in content
        assert "${" not in path.read_text()


def test_no_file_names_a_registry_or_a_machine() -> None:
    # Put together from pieces, as this file is read too.
    hosts = "|".join(a + r"\." + b for a, b in (("pypi", "org"), ("pythonhosted", "org"), ("debian", "org")))
    hosts += "|" + "|".join(
        a + r"\." + b for a, b in (("npmjs", "org"), ("proxy.golang", "org"), ("crates", "io"))
    )
    places = "|".join(("work", "root", r"home/\w+", r"Users/\w+"))
    pattern = re.compile(rf"{hosts}|(?<![\w.}}/-])/(?:{places})(?:/|\b(?!-))")
    found = []
    for path in project_files():
        content = path.read_bytes()
        if b"\0" in content:
            continue
        for number, line in enumerate(content.decode().splitlines(), 1):
            if pattern.search(line):
                found.append(f"{path.relative_to(ROOT)}:{number}: {line.strip()[:100]}")
    assert not found


def locked() -> dict[str, list[str]]:
    """Hashes by `name==version` in requirements.lock; whatever else stands there is an error."""
    text = (ROOT / "requirements.lock").read_text().replace("\\\n", " ")
    found: dict[str, list[str]] = {}
    for line in text.splitlines():
        if line.strip() and not line.lstrip().startswith("#"):
            head, *hashes = re.split(r" +--hash=", line.strip())
            pin = re.fullmatch(r"([a-z0-9-]+==[0-9][0-9a-z.+]*)( ; .+)?", head)
            assert pin, f"not a pin: {line[:80]}"
            assert all(re.fullmatch(r"sha256:[0-9a-f]{64}", value) for value in hashes), line[:80]
            found.setdefault(pin[1], []).extend(hashes)
    return found


def test_lock_is_pinned_hashed_and_names_no_index() -> None:
    pins = locked()
    assert not [pin for pin, hashes in pins.items() if not hashes]
    text = (ROOT / "requirements.lock").read_text()
    assert not re.search(r"://|index-url|find-links|--trusted-host|@ ", text)


def test_lock_covers_every_dependency() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = [*project["dependencies"], *project["optional-dependencies"]["dev"]]
    names = {re.split(r"[<>=!~ \[;]", line)[0].lower().replace("_", "-") for line in wanted}
    assert names <= {pin.split("==")[0] for pin in locked()}


# Examples of CONTRIBUTING.md ---------------------------------------------------------------------


def example(name: str) -> str:
    """The block of code that follows the mention of the file `name`."""
    text = (ROOT / "CONTRIBUTING.md").read_text()
    block = re.search(rf"`{re.escape(name)}`[^`]*?:\n\n```\w+\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    assert block, f"CONTRIBUTING.md has no example {name}"
    return block[1]


@pytest.fixture
def run_example(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Import a Python example under its own name, until the end of the test."""

    def run(name: str) -> None:
        module = types.ModuleType(f"example_{Path(name).stem}")
        monkeypatch.setitem(sys.modules, module.__name__, module)
        exec(compile(example(name), name, "exec", dont_inherit=True), module.__dict__)

    return run


def test_example_of_a_method_works(
    monkeypatch: pytest.MonkeyPatch, run_example: Callable[[str], None]
) -> None:
    from methods.core import build as method
    from methods.core import registry

    registry.names("client")  # all that exist, so that the example does not stay among them
    monkeypatch.setitem(registry._rules, "client", dict(registry._rules["client"]))
    run_example("methods/logit_squeezing.py")
    built = method.build(yaml.safe_load(example("conf/method/logit_squeezing.yaml")))
    (rule,) = built.client
    logits = torch.tensor([[3.0, 4.0], [1.0, 0.0]])
    batch = rules.Batch(
        torch.empty(0), torch.empty(0), torch.empty(0), logits, torch.empty(0), torch.empty(0)
    )
    assert float(rule.loss(None, batch).extra) == pytest.approx(0.01 * (25 + 1) / 2)
    for spelling in ("lam: -1", "lambda: 1"):
        with pytest.raises(registry.MethodError):
            method.build(yaml.safe_load(f"name: x\nclient: {{logit_squeezing: {{{spelling}}}}}"))


def test_a_method_in_two_files_has_a_row_in_every_table(tmp_path: Path) -> None:
    """The two files of the example in a copy of the project, nothing else: Table 1 and the leaderboard have a row."""
    project = tmp_path / "project"
    for path in project_files():
        place = project / path.relative_to(ROOT)
        if path.relative_to(ROOT).parts[0] not in ("tests", "docs"):
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, place)
    for name in ("methods/logit_squeezing.py", "conf/method/logit_squeezing.yaml"):
        (project / name).write_text(example(name))
    for table, column in (("paper=fedmr table=1", "fmnist/p5c2"), ("name=leaderboard", "fmnist/p5c2")):
        words = [
            *table.split(),
            "rows=fedavg,logit_squeezing",
            f"columns={column}",
            "seeds=1",
            "launcher=inline",
        ]
        done = subprocess.run(
            [sys.executable, "-m", "benchmark", "table", *words],
            cwd=project, capture_output=True, text=True, timeout=300, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        assert "2 done" in done.stdout
    tables = project / "results" / "tables" / "quick"
    for name in ("fedmr_table1", "leaderboard"):
        assert "| Logit squeezing |" in (tables / f"{name}.md").read_text()


def test_example_of_a_dataset_works(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, run_example: Callable[[str], None]
) -> None:
    from datasets import load, names
    from datasets.core import registry

    names()
    monkeypatch.setattr(registry, "_entries", dict(registry._entries))
    run_example("datasets/stripes.py")
    config = yaml.safe_load(example("conf/dataset/stripes.yaml"))
    data = load(config["name"], config["options"], tmp_path / "raw", tmp_path / "cache")
    assert len(data.train) == len(data.test) == 200 and data.classes == ("row", "column")
    full_row = (np.asarray(data.train.images) == 255).all(axis=3).any(axis=(1, 2))
    assert (full_row == (data.train.labels == 0)).all()


def test_example_of_a_partition_works(
    monkeypatch: pytest.MonkeyPatch, run_example: Callable[[str], None]
) -> None:
    from partitions import Population, make, names
    from partitions.core import registry

    names()
    monkeypatch.setattr(registry, "_SCHEMES", dict(registry._SCHEMES))
    run_example("partitions/unequal.py")
    config = yaml.safe_load(example("conf/partition/unequal.yaml"))
    scheme = make(config.pop("name"), {key: value for key, value in config.items() if key != "seed"})
    clients = scheme.split(Population(np.zeros(100, dtype=np.int64), 1), np.random.default_rng(0))
    assert len(clients) == 10
    assert sorted(np.concatenate(clients)) == list(range(100))


def test_example_of_a_table_works(tmp_path: Path) -> None:
    from benchmark.experiments.spec import load_spec

    name = "conf/table/proximal_term.yaml"
    path = tmp_path / Path(name).name
    path.write_text(example(name))
    spec = load_spec(path)
    overrides = spec.cell_overrides("fedprox_0.1", "p5c2", "quick")
    assert overrides is not None
    assert overrides["method"] == {"name": "fedprox", "client": {"fedprox": {"mu": 0.1}}}
    assert overrides["partition"]["clients"] == 5


# What tests may do -------------------------------------------------------------------------------


def test_tests_have_no_network_but_this_machine() -> None:
    with pytest.raises(OSError, match="no network"):
        socket.create_connection(("example.org", 80), timeout=1)
    with pytest.raises(OSError, match="no network"), socket.socket() as outside:
        outside.connect(("192.0.2.1", 80))  # an address reserved for documentation
    with socket.create_server(("127.0.0.1", 0)) as server:
        socket.create_connection(("localhost", server.getsockname()[1]), timeout=5).close()


def test_tests_run_on_one_thread() -> None:
    assert torch.get_num_threads() == 1


# Make --------------------------------------------------------------------------------------------


@pytest.fixture(scope="module", autouse=True)
def plain_make() -> Iterator[None]:
    """`make test` hands its own variables down; what these tests start must not inherit them."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("MAKEFLAGS", "MAKEOVERRIDES", "MFLAGS", "MAKELEVEL", *makefile_variables()):
            patch.delenv(name, raising=False)
        yield


def makefile_targets() -> set[str]:
    return set(re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))


def makefile_variables() -> set[str]:
    return set(re.findall(r"^([A-Z]+) +\?=", (ROOT / "Makefile").read_text(), re.MULTILINE))


def documents() -> list[Path]:
    return [path for path in project_files() if path.suffix == ".md"]


def test_documents_name_only_targets_and_variables_that_exist() -> None:
    unknown, named = [], set()
    for path in documents():
        spans = re.findall(r"`([^`\n]+)`", path.read_text())
        lines = [*spans, *(line for block in code_blocks(path) for line in block.splitlines())]
        for line in lines:
            command = re.match(r"make ([^#]*)", line.strip())
            for word in command[1].split() if command else ():
                if "=" in word:
                    word = word.split("=")[0]
                    known = makefile_variables()
                elif re.fullmatch(r"[a-z0-9-]+", word):
                    named.add(word)
                    known = makefile_targets()
                else:
                    continue
                if word not in known:
                    unknown.append(f"{path.relative_to(ROOT)}: make {word}")
    assert not unknown
    assert {"table1", "test", "bench", "check"} <= named


def code_blocks(path: Path) -> list[str]:
    """The fenced blocks of a document."""
    parts = re.split(r"^```\w*\n", path.read_text(), flags=re.MULTILINE)
    assert len(parts) % 2 == 1, f"{path.name}: a block of code is not closed"
    return parts[1::2]


def command_lines(document: str) -> list[list[str]]:
    """The words behind each `python -m benchmark` in a document's blocks of code."""
    lines = [line for block in code_blocks(ROOT / document) for line in block.splitlines()]
    found = [
        shlex.split(line, comments=True)[3:] for line in lines if line.startswith("python -m benchmark ")
    ]
    assert found
    return found


@pytest.mark.parametrize(
    "document",
    ["README.md", "CONTRIBUTING.md", "docs/paper.md", "docs/scale.md", "docs/transforms.md", "docs/wandb.md"],
)
def test_documents_name_only_commands_that_exist(document: str) -> None:
    from benchmark.__main__ import USAGE

    known = set(re.findall(r"^  ([a-z]+)", USAGE, re.MULTILINE))
    assert {words[0] for words in command_lines(document)} <= known


def test_runs_of_the_readme_compose() -> None:
    from benchmark.config.compose import resolve

    runs = [words[1:] for words in command_lines("README.md") if words[0] == "run"]
    assert len(runs) >= 3
    for words in runs:
        # Of a sweep (-m) the first combination.
        plain = [word.split(",")[0] for word in words if word not in ("-m", "--help")]
        with hydra.initialize_config_dir(str(ROOT / "conf"), version_base="1.3"):
            composed = OmegaConf.to_container(hydra.compose("config", overrides=plain), resolve=True)
        assert isinstance(composed, dict)
        resolve({str(key): value for key, value in composed.items()})
        ours = [word for word in plain if "." in word and not word.startswith("hydra.")]
        for key, value in (word.split("=") for word in ours):
            node: Any = composed
            for part in key.split("."):
                node = node[part]
            assert node == yaml.safe_load(value)


def test_every_target_is_explained() -> None:
    shown = subprocess.run(["make", "help"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert makefile_targets() == set(re.findall(r"^  ([a-z0-9-]+) ", shown, re.MULTILINE))
    assert makefile_variables() == set(re.findall(r"^  ([A-Z]+) ", shown, re.MULTILINE))


def executable(path: Path, script: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(script)
    path.chmod(0o755)
    return path


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A copy of what `make` reads, with a ready `.venv` whose interpreter only says how it was called."""
    (tmp_path / "scripts").mkdir()
    for name in ("Makefile", "requirements.lock", "scripts/setup_environment.py"):
        shutil.copyfile(ROOT / name, tmp_path / name)
    executable(
        tmp_path / ".venv" / "bin" / "python",
        '#!/bin/sh\nif [ "$1" = -IS ]; then echo 1; exit 0; fi\nprintf "[%s]" "$@"\nexit ${FAKE_STATUS:-0}\n',
    )
    digest = hashlib.sha256((tmp_path / "requirements.lock").read_bytes()).hexdigest()
    (tmp_path / ".venv" / ".ready").write_text(digest + "\n")
    return tmp_path


def make(folder: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = ["make", "-C", str(folder), "--no-print-directory", *arguments]
    return subprocess.run(
        command, capture_output=True, text=True, env={**os.environ, **environment}, timeout=60
    )


@pytest.mark.parametrize(
    ("arguments", "called"),
    [
        (["table1"], "table table=1 preset=quick launcher=local"),
        (["table1", "PAPER=fedmr", "PRESET=small"], "table table=1 paper=fedmr preset=small launcher=local"),
        (["table1", "SEEDS=0"], "table table=1 preset=quick seeds=0 launcher=local"),
        (["table", "PAPER=fedld", "TABLE=3"], "table table=3 paper=fedld preset=quick launcher=local"),
        (["tables", "LAUNCHER=inline", "SEEDS=2"], "table preset=quick seeds=2 launcher=inline"),
        (
            ["table1", "WORKERS=2", "ARGS=a=1 b=2"],
            "table table=1 preset=quick launcher=local workers=2 a=1 b=2",
        ),
        (["status", "PAPER=fedmr"], "status paper=fedmr preset=quick"),
        (["list", "ARGS=methods"], "list methods"),
        (["bench"], "bench"),
    ],
)
def test_make_hands_its_variables_on(checkout: Path, arguments: list[str], called: str) -> None:
    done = make(checkout, *arguments)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "".join(f"[{word}]" for word in ["-m", "benchmark", *called.split()])
    assert done.stderr == ""


def test_make_keeps_a_value_one_word(checkout: Path) -> None:
    assert "[paper=it's; rm *]" in make(checkout, "table1", "PAPER=it's; rm *").stdout


def test_make_passes_a_failure_on_and_adds_one_line(checkout: Path) -> None:
    done = make(checkout, "table1", "SEEDS=0", FAKE_STATUS="2")
    assert done.returncode == 2
    assert re.fullmatch(r"make: \*\*\* \[Makefile:\d+: table1\] Error 2\n", done.stderr)


def test_make_refuses_a_misspelt_variable(checkout: Path) -> None:
    done = make(checkout, "table1", "SEED=1")
    assert done.returncode == 2
    assert "unknown variable SEED;" in done.stderr and "SEEDS" in done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize(("python", "found"), [("old", "Python 3.9.2"), ("none", "not installed")])
def test_make_says_that_python_is_too_old(checkout: Path, tmp_path: Path, python: str, found: str) -> None:
    executable(tmp_path / "bin" / "old", '#!/bin/sh\n[ "$1" = --version ] && echo Python 3.9.2 || exit 1\n')
    (checkout / ".venv" / ".ready").unlink()
    done = make(checkout, "test", f"PYTHON={tmp_path}/bin/{python}")
    assert done.returncode == 2
    message, last = done.stderr.splitlines()
    assert "needs Python 3.11 or newer" in message and f"is {found}." in message
    assert last.startswith("make: ***")


# Setting up --------------------------------------------------------------------------------------


@pytest.fixture
def fresh(checkout: Path) -> tuple[Path, dict[str, str]]:
    """A checkout without `.venv`, and an environment in which `uv` only records how it was called."""
    shutil.rmtree(checkout / ".venv")
    log = checkout / "uv.log"
    executable(
        checkout / "bin" / "uv",
        f'#!/bin/sh\n[ "$1" = pip ] && echo "$@" >> {log}\nexit ${{FAKE_STATUS:-0}}\n',
    )
    return checkout, {"PATH": f"{checkout}/bin:{os.environ['PATH']}", "PYTHON": sys.executable}


def installs(folder: Path) -> int:
    log = folder / "uv.log"
    return len(log.read_text().splitlines()) if log.exists() else 0


def test_setup_installs_the_lock_once(fresh: tuple[Path, dict[str, str]]) -> None:
    folder, environment = fresh
    assert make(folder, "setup", **environment).returncode == 0
    call = (folder / "uv.log").read_text().split()
    assert call[:2] == ["pip", "sync"] and call[-1] == str(folder / "requirements.lock")
    assert "--require-hashes" in call and str(folder / ".venv/bin/python") in call
    assert subprocess.run([folder / ".venv/bin/python", "-c", "pass"]).returncode == 0
    assert make(folder, "setup", **environment).stderr == ""
    assert installs(folder) == 1


def test_setup_follows_the_lock_by_content(fresh: tuple[Path, dict[str, str]]) -> None:
    folder, environment = fresh
    make(folder, "setup", **environment)
    kept = folder / ".venv" / "kept"
    kept.touch()
    later = time.time() + 10
    os.utime(folder / "requirements.lock", (later, later))  # newer, but the same: as after a checkout
    make(folder, "setup", **environment)
    assert installs(folder) == 1
    with (folder / "requirements.lock").open("a") as lock:
        lock.write("# changed\n")
    os.utime(folder / "requirements.lock", (later + 10, later + 10))
    make(folder, "setup", **environment)
    assert installs(folder) == 2
    assert kept.exists(), "a finished .venv is updated, not made again"


@pytest.mark.parametrize("damage", ["no stamp", "dead interpreter", "a file", "dead link"])
def test_setup_mends_what_an_interruption_left(fresh: tuple[Path, dict[str, str]], damage: str) -> None:
    folder, environment = fresh
    venv = folder / ".venv"
    make(folder, "setup", **environment)
    half = venv / "lib" / "half-installed"
    half.touch()
    if damage == "no stamp":
        (venv / ".ready").unlink()
    elif damage == "dead interpreter":
        (venv / "bin" / "python").unlink()
        (venv / "bin" / "python").symlink_to(folder / "nowhere")
    else:
        shutil.rmtree(venv)
        venv.symlink_to(folder / "nowhere") if damage == "dead link" else venv.touch()
    done = make(folder, "setup", **environment)
    assert done.returncode == 0, done.stderr
    assert installs(folder) == 2
    assert not half.exists()
    assert (venv / ".ready").exists()


def test_setup_that_fails_leaves_no_stamp(fresh: tuple[Path, dict[str, str]]) -> None:
    folder, environment = fresh
    uv = (folder / "bin" / "uv").read_text()
    executable(
        folder / "bin" / "uv",
        '#!/bin/sh\n[ "$1" = pip ] && { echo "no route to index" >&2; exit 1; }\nexit 0\n',
    )
    done = make(folder, "setup", **environment)
    assert done.returncode == 2
    assert "no route to index" in done.stderr and "Run the same make command again" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (folder / ".venv" / ".ready").exists()
    executable(folder / "bin" / "uv", uv)
    assert make(folder, "setup", **environment).returncode == 0


def test_setups_at_once_wait_for_each_other(fresh: tuple[Path, dict[str, str]]) -> None:
    folder, environment = fresh
    with (folder / ".venv.lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        command = ["make", "-C", str(folder), "setup"]
        waiting = subprocess.Popen(
            command, stderr=subprocess.PIPE, text=True, env={**os.environ, **environment}
        )
        assert waiting.stderr is not None
        assert "waiting" in waiting.stderr.readline()
        assert not (folder / ".venv").exists()
    assert waiting.wait(60) == 0
    waiting.stderr.close()
    assert installs(folder) == 1

"""The project as a whole: imports, files, the lock, and what the documents show."""

import re
import shlex
import socket
import subprocess
import sys
import tomllib
import types
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import yaml

ROOT = Path(__file__).resolve().parent.parent


def project_files() -> list[Path]:
    """Files that git tracks, or would with `git add .`."""
    command = ["git", "-C", str(ROOT), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, capture_output=True, check=True, text=True).stdout
    return sorted(path for name in listed.split("\0") if name and (path := ROOT / name).is_file())


def python(code: str, folder: Path = ROOT) -> str:
    """Standard output of a fresh interpreter in a checkout."""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


# Imports and files -------------------------------------------------------------------------------


def test_import_datasets_is_ours_and_no_import_uses_the_network() -> None:
    code = """
import pkgutil, socket, sys
def refuse(*args, **kwargs): raise OSError("an import uses the network")
socket.socket.connect = socket.getaddrinfo = refuse
import benchmark, datasets, methods, partitions
for package in (benchmark, datasets, methods, partitions):
    for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        if not module.name.endswith("__main__"):
            __import__(module.name)
print(datasets.__file__)
"""
    assert Path(python(code).strip()) == ROOT / "datasets" / "__init__.py"


def test_tests_have_no_network_but_this_machine() -> None:
    with pytest.raises(OSError, match="no network"):
        socket.create_connection(("example.org", 80), timeout=1)
    with pytest.raises(OSError, match="no network"), socket.socket() as outside:
        outside.connect(("192.0.2.1", 80))  # an address reserved for documentation
    with socket.create_server(("127.0.0.1", 0)) as server:
        socket.create_connection(("localhost", server.getsockname()[1]), timeout=5).close()


def test_no_file_names_a_registry_or_a_machine() -> None:
    # Put together from pieces, as this file is read too.
    hosts = [r"\.".join(pair) for pair in zip(("pypi", "pythonhosted", "debian"), ["org"] * 3, strict=True)]
    places = "|".join(("work", "root", r"home/\w+", r"Users/\w+"))
    pattern = re.compile(rf"{'|'.join(hosts)}|(?<![\w.}}/-])/(?:{places})(?:/|\b(?!-))")
    for path in project_files():
        content = path.read_bytes()
        if b"\0" not in content:
            found = [line.strip()[:100] for line in content.decode().splitlines() if pattern.search(line)]
            assert not found, path


def test_lock_pins_every_dependency_with_hashes_and_names_no_index() -> None:
    text = (ROOT / "requirements.lock").read_text()
    assert not re.search(r"://|index-url|find-links|trusted-host|@ ", text)
    pinned = set()
    for line in re.sub(r"^ *#.*\n", "", text, flags=re.MULTILINE).replace("\\\n", " ").splitlines():
        pin = re.fullmatch(
            r"([a-z0-9-]+)==[0-9][0-9a-z.+]*( ; .+?)?( +--hash=sha256:[0-9a-f]{64})+", line.rstrip()
        )
        assert pin, f"not a pin with hashes: {line[:80]}"
        pinned.add(pin[1])
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = [*project["dependencies"], *project["optional-dependencies"]["dev"]]
    assert {re.split(r"[<>=]", line)[0].lower() for line in wanted} <= pinned


# Examples of docs/tutorials ----------------------------------------------------------------------


def example(name: str) -> str:
    """The block of code that follows the mention of the file `name`."""
    text = "".join(page.read_text() for page in (ROOT / "docs/tutorials").glob("*.md"))
    block = re.search(rf"`{re.escape(name)}`[^`]*?:\n\n```\w+\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    assert block, f"no example {name}"
    return block[1]


@pytest.fixture
def run_example(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Import a Python example under a name of its own, until the end of the test."""

    def run(name: str) -> None:
        module = types.ModuleType(f"example_{Path(name).stem}")
        monkeypatch.setitem(sys.modules, module.__name__, module)
        exec(compile(example(name), name, "exec", dont_inherit=True), module.__dict__)

    return run


def test_example_of_a_method() -> None:
    """The pages show the files of docs/template, which tests/test_own_repository.py runs."""
    for name in ("methods/logit_squeezing.py", "conf/method/logit_squeezing.yaml"):
        assert example(name) == (ROOT / "docs" / "template" / name).read_text()
    shown = (ROOT / "README.md").read_text().split("```python\n")[1].split("```")[0]
    assert set(shown.splitlines()) <= set(example("methods/logit_squeezing.py").splitlines())


def test_example_of_a_dataset(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, run_example: Callable[[str], None]
) -> None:
    from datasets import load, names
    from datasets.core import registry

    names()
    monkeypatch.setattr(registry.ENTRIES, "found", dict(registry.ENTRIES.found))
    run_example("datasets/stripes.py")
    config = yaml.safe_load(example("conf/dataset/stripes.yaml"))
    data = load(config["name"], config["options"], tmp_path / "raw", tmp_path / "cache")
    assert len(data.train) == len(data.test) == 200 and data.classes == ("row", "column")
    full_row = (np.asarray(data.train.images) == 255).all(axis=3).any(axis=(1, 2))
    assert (full_row == (data.train.labels == 0)).all()


def test_example_of_a_partition(monkeypatch: pytest.MonkeyPatch, run_example: Callable[[str], None]) -> None:
    from partitions import Population, make, names
    from partitions.core import registry

    names()
    monkeypatch.setattr(registry.SCHEMES, "found", dict(registry.SCHEMES.found))
    run_example("partitions/unequal.py")
    config = yaml.safe_load(example("conf/partition/unequal.yaml"))
    scheme = make(config.pop("name"), {key: value for key, value in config.items() if key != "seed"})
    clients = scheme.split(Population(np.zeros(100, dtype=np.int64), 1), np.random.default_rng(0))
    assert len(clients) == 10
    assert sorted(np.concatenate(clients)) == list(range(100))


def test_example_of_a_table(tmp_path: Path) -> None:
    from benchmark.experiments.tables import load_spec

    name = "conf/table/proximal_term.yaml"
    path = tmp_path / Path(name).name
    path.write_text(example(name))
    overrides = load_spec(path).cell_settings("fedprox_0.1", "p5c2", "quick")
    assert overrides is not None
    assert overrides["method"] == {"name": "fedprox", "client": {"fedprox": {"mu": 0.1}}}
    assert overrides["partition"]["clients"] == 5


def test_commands_of_the_tutorial_of_a_sweep(tmp_path: Path) -> None:
    """The first experiment and the first sweep: five runs, of which none is carried out twice."""
    from benchmark.__main__ import main

    shown = [
        line
        for line in code_lines(ROOT / "docs/tutorials/sweep.md")
        if "train.rounds=2" in line and "digits" in line
    ]
    results = f"paths.results={tmp_path}"
    for line in shown:
        words = shlex.split(line)[3:]
        assert main([*words, results, *(["launcher=inline"] if "-m" in words else [])]) == 0
    finished = [path.parent.name for path in (tmp_path / "runs").rglob("result.json")]
    assert sorted(finished) == ["seed0", "seed0", "seed0", "seed1", "seed1"]


# What documents show -----------------------------------------------------------------------------


def documents() -> list[Path]:
    return [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]


def code_lines(document: Path) -> list[str]:
    """The lines of a document's fenced blocks of code; a command that goes on after a backslash is one line."""
    parts = re.split(r"^```\w*\n", document.read_text(), flags=re.MULTILINE)
    assert len(parts) % 2 == 1, f"{document.name}: a block of code is not closed"
    return [line for block in parts[1::2] for line in re.sub(r"\\\n *", "", block).splitlines()]


def test_documents_name_only_what_exists() -> None:
    """Commands, make's targets and variables, and files."""
    from benchmark.cli import COMMANDS

    makefile = (ROOT / "Makefile").read_text()
    targets = set(re.findall(r"^([a-z0-9-]+):", makefile, re.MULTILINE))
    variables = set(re.findall(r"^([A-Z]+) +\?=", makefile, re.MULTILINE))
    for path in documents():
        spans = re.findall(r"`([^`\n]+)`", path.read_text())
        for line in (line.strip() for line in [*spans, *code_lines(path)]):
            if line.startswith("python -m benchmark "):
                assert line.split()[3] in {*COMMANDS, "--help"}, f"{path.name}: {line}"
            elif line.startswith("make ") and "TARGET" not in line:
                words = shlex.split(line, comments=True)[1:]
                unknown = {word.split("=")[0] for word in words if "=" in word} - variables
                unknown |= {word for word in words if re.fullmatch(r"[a-z0-9-]+", word)} - targets
                assert not unknown, f"{path.name}: {line}"
        links = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", path.read_text())
        named = {path.parent / link for link in links}
        named |= {ROOT / span for span in spans if re.fullmatch(r"(benchmark|scripts|tests)/[\w./-]+", span)}
        missing = [str(place) for place in named if not place.exists()]
        assert not missing, path.name


def test_architecture_names_functions_that_exist() -> None:
    steps = re.findall(
        r"^\| .* \| `(\S+\.py)` \| (.*) \|$", (ROOT / "docs/architecture.md").read_text(), re.MULTILINE
    )
    assert len(steps) > 10
    for path, names in steps:
        source = (ROOT / path).read_text()
        for name in re.findall(r"`(\w+)`", names):
            assert re.search(rf"^ *(def|class) {name}\b", source, re.MULTILINE), f"{path}: {name}"


def test_runs_that_documents_show_compose() -> None:
    from benchmark.cli.grammar import axes_of
    from benchmark.experiments.sweeps import Sweep

    pages = [path for path in documents() if path.name != "method.md"]  # its method is no file
    shown = [
        line for path in pages for line in code_lines(path) if line.startswith("python -m benchmark run ")
    ]
    assert len(shown) >= 3
    for line in shown:
        words = shlex.split(line, comments=True)[4:]
        ours = [word for word in words if not word.startswith(("-", "launcher", "tracking"))]
        assert Sweep.of(axes_of(ours)).runs

"""The project as a whole: imports, files and the lock."""

import re
import socket
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

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

"""The packages are ours, and neither their import nor a test uses the network."""

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from benchmark.paths import ROOT


def test_import_datasets_is_ours_and_no_import_uses_the_network() -> None:
    code = """
import pkgutil, socket, sys
def refuse(*args, **kwargs): raise OSError("an import uses the network")
socket.socket.connect = socket.getaddrinfo = refuse
import benchmark, datasets, methods, metrics, models, partitions
for package in (benchmark, datasets, methods, metrics, models, partitions):
    for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        if not module.name.endswith("__main__"):
            __import__(module.name)
print(datasets.__file__)
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert Path(done.stdout.strip()) == ROOT / "datasets" / "__init__.py"


def test_tests_have_no_network_but_this_machine() -> None:
    with pytest.raises(OSError, match="no network"):
        socket.create_connection(("example.org", 80), timeout=1)
    with pytest.raises(OSError, match="no network"), socket.socket() as outside:
        outside.connect(("192.0.2.1", 80))  # an address reserved for documentation
    with socket.create_server(("127.0.0.1", 0)) as server:
        socket.create_connection(("localhost", server.getsockname()[1]), timeout=5).close()

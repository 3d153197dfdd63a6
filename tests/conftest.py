"""What all tests share: one thread, no network, a cache of their own, and the folders that they read."""

import contextlib
import ipaddress
import os
import shutil
import signal
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

ROOT = Path(__file__).resolve().parent.parent

# The results are promised bit for bit for one thread per run; libraries that read these do so on import,
# so subprocesses and workers started by tests get them too.
for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ[name] = "1"
os.environ["WANDB_MODE"] = "disabled"
os.environ["MPLBACKEND"] = "Agg"
torch.set_num_threads(1)

# Where the real files are: what the user says, otherwise a folder "shared" beside the checkout.
_beside = ROOT.parent / "shared" / "data"
if not os.environ.get("FEDTABLES_DATA") and _beside.is_dir():
    os.environ["FEDTABLES_DATA"] = str(_beside)


class NetworkUse(OSError):
    """A test reached for the network."""


def pytest_configure(config: pytest.Config) -> None:
    """Make the suite's temporary folder; its name in their environment marks all processes of the suite."""
    # A suite started in the background (`nohup make test &`) ignores these signals, and so would all that tests start.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in (signal.SIGHUP, signal.SIGQUIT):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, lambda *_: None)
    if hasattr(config, "workerinput"):
        return  # a worker of pytest-xdist: its parent has made the folder
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    os.environ["FEDTABLES_TESTS"] = tempfile.mkdtemp(prefix="fedtables-tests-")
    os.environ["FEDTABLES_CACHE"] = os.path.join(os.environ["FEDTABLES_TESTS"], "cache")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests in a browser are slow."""
    for item in items:
        if "browser" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.slow)


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Kill every process that an interrupted suite has started, its workers included."""
    if exitstatus != pytest.ExitCode.INTERRUPTED or hasattr(session.config, "workerinput"):
        return
    mark = f"FEDTABLES_TESTS={os.environ['FEDTABLES_TESTS']}".encode()
    for environment in Path("/proc").glob(
        "[0-9]*/environ"
    ):  # macOS has no such folder: nothing is killed there
        with contextlib.suppress(OSError):
            if mark in environment.read_bytes().split(b"\0") and environment.parent.name != str(os.getpid()):
                os.kill(int(environment.parent.name), signal.SIGKILL)


def pytest_unconfigure(config: pytest.Config) -> None:
    """Remove the suite's temporary folder."""
    if not hasattr(config, "workerinput"):
        shutil.rmtree(os.environ["FEDTABLES_TESTS"], ignore_errors=True)


def _is_local(host: Any) -> bool:
    if not isinstance(host, str) or host in ("", "localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


@pytest.fixture(autouse=True)
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make every connection to another machine fail at once, as on a machine without a network."""
    connect, resolve = socket.socket.connect, socket.getaddrinfo

    def guarded_connect(self: socket.socket, address: Any) -> None:
        if self.family in (socket.AF_INET, socket.AF_INET6) and not _is_local(address[0]):
            raise NetworkUse(f"tests use no network; this one connects to {address[0]}")
        connect(self, address)

    def guarded_resolve(host: Any, *args: Any, **kwargs: Any) -> Any:
        if not _is_local(host):
            raise socket.gaierror(socket.EAI_NONAME, f"tests use no network; this one looks up {host}")
        return resolve(host, *args, **kwargs)

    monkeypatch.setattr(socket.socket, "connect", guarded_connect)
    monkeypatch.setattr(socket, "getaddrinfo", guarded_resolve)


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """One torch thread in every test, whatever the test before it set."""
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def root() -> Path:
    """The repository."""
    return ROOT


@pytest.fixture(scope="session")
def golden() -> Path:
    """Files with numbers to check against (tests/golden)."""
    return ROOT / "tests" / "golden"


@pytest.fixture(scope="session")
def published() -> Path:
    """The papers' printed numbers (results/published)."""
    return ROOT / "results" / "published"


@pytest.fixture(scope="session")
def real_data() -> Path:
    """The folder with real raw files; skips the test where there is none."""
    folder = os.environ.get("FEDTABLES_DATA", "")
    if not folder or not Path(folder).is_dir():
        pytest.skip("no real data: set FEDTABLES_DATA to the folder that has them")
    return Path(folder)

"""The operating system: what it refuses, the cores that it grants, and files that are replaced in one step.

This module imports nothing of ours but the errors. Every package may import it.
"""

import contextlib
import errno
import os
import platform
import re
import secrets
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from benchmark.errors import shorten

PARENT_SECONDS = 0.5
"""Time between two looks whether the parent of a process lives."""

_NO_GPU_MEMORY = re.compile("CUDA error: out of memory|CU(BLAS|DNN)_STATUS_ALLOC_FAILED")
"""What CUDA's libraries say beside torch's own class of error."""

_REFUSED = (
    errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.ESTALE, errno.EROFS, errno.EACCES, errno.EPERM, errno.EMFILE,
    errno.ENFILE, errno.ENAMETOOLONG,
)  # fmt: skip

_NO_MEMORY = re.compile(
    "allocate memory|not enough memory|bad_alloc|failed to map segment|can't start new thread", re.IGNORECASE
)
"""What libraries say without an error number, from the allocator, the dynamic linker, or the start of a thread."""

NO_MEMORY = (
    "there is not enough memory. Let fewer programs or workers (workers=NUMBER) run at the same time, raise the limit "
    "(`ulimit -v`, or launcher.mem on a cluster), or use smaller batches (train.batch_size, evaluation.batch_size)."
)


def no_gpu_memory(error: BaseException) -> bool:
    """Whether an error says that a GPU has no memory left."""
    return type(error).__name__ == "OutOfMemoryError" or bool(_NO_GPU_MEMORY.search(str(error)))


def explain(error: BaseException, what: str = "a file") -> str | None:
    """The message about an error whose cause is the system and not the program; None for all other errors.

    ``what``: what could not be written, if the error does not say it.
    """
    if isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno == errno.ENOMEM):
        return NO_MEMORY
    if isinstance(error, OSError) and error.errno in _REFUSED:
        what = what if error.filename is None else shorten(os.fsdecode(error.filename))
        return f"{what} cannot be used ({error.strerror})."
    hidden = isinstance(error, RuntimeError | ImportError) and _NO_MEMORY.search(str(error))
    return NO_MEMORY if hidden else None


def usable_cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def end_with_parent(warn: Callable[[], object], grace: float) -> None:
    """End this process when its parent has died: call ``warn`` first, and wait for ``grace`` seconds after that."""
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(PARENT_SECONDS)
        warn()
        time.sleep(grace)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def processor() -> str:
    """The type of this machine's processor. The same code may give other bits on another one."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A free name beside ``path`` for a new file or folder. At the end of the ``with`` it is renamed to ``path``.

    So no reader sees half of it. After an exception ``path`` is as it was. A folder replaces no filled folder.
    """
    beside = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}.tmp")
    try:
        yield beside
        beside.replace(path)
    finally:
        with contextlib.suppress(OSError):
            if beside.is_dir():
                shutil.rmtree(beside)
            else:
                beside.unlink(missing_ok=True)

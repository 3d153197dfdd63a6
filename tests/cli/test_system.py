"""What the operating system refuses ends in one message, and nothing of a killed command stays."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from command_line import FAKE_RUN

from benchmark.system import NO_MEMORY, explain, no_gpu_memory

COMMAND = f"{sys.executable} -m benchmark"


def shell(root: Path, line: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["bash", "-c", line], cwd=root, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("list methods >/dev/full", "the output cannot be used (No space left on device)"),
        ("table --help >/dev/full", "the output cannot be used (No space left on device)"),
        ("list methods >&-", "standard output is closed"),
        (f"status results={'x' * 256}", "cannot be used (File name too long)"),
    ],
)
def test_one_message(line: str, said: str, root: Path) -> None:
    done = shell(root, f"{COMMAND} {line}")
    assert done.returncode == 2, done
    assert done.stderr.startswith("error: ") and done.stderr.count("\n") == 1, done.stderr
    assert said in done.stderr


def test_nobody_reads_the_output(root: Path) -> None:
    """As after `| head -1`."""
    reader, writer = os.pipe()
    os.close(reader)
    for words in (["list"], ["table", "--help"]):
        line = [sys.executable, "-m", "benchmark", *words]
        done = subprocess.run(line, cwd=root, stdout=writer, stderr=subprocess.PIPE, text=True, check=False)
        assert (done.returncode, done.stderr) == (141, "")
    os.close(writer)


def test_runs_go_on_without_output(root: Path, tmp_path: Path) -> None:
    words = f"{' '.join(FAKE_RUN)} -m launcher=inline results={tmp_path}"
    done = shell(root, f"{COMMAND} {words} >/dev/full")
    assert done.returncode == 2, done
    assert done.stderr == "error: the output cannot be used (No space left on device).\n"
    (result,) = tmp_path.glob("runs/*/seed0/result.json")
    assert '"state": "done"' in result.read_text()


@pytest.mark.parametrize(
    ("error", "explained"),
    [
        (MemoryError(), True),
        (OSError(12, "Cannot allocate memory"), True),
        (RuntimeError("DefaultCPUAllocator: not enough memory: you tried to allocate 4 bytes."), True),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 4 bytes."), True),
        (ImportError("libtorch.so: failed to map segment from shared object"), True),
        (RuntimeError("can't start new thread"), True),
        (RuntimeError("a fault of the program"), False),
        (ValueError("not enough memory"), False),
        (OSError(2, "No such file or directory", "x"), False),
    ],
)
def test_too_little_memory(error: BaseException, explained: bool) -> None:
    assert explain(error) == (NO_MEMORY if explained else None)


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB."), True),
        (torch.AcceleratorError("CUDA error: out of memory"), True),
        (RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"), True),
        (RuntimeError("cuDNN error: CUDNN_STATUS_ALLOC_FAILED"), True),
        (torch.AcceleratorError("CUDA error: an illegal memory access was encountered"), False),
        (ZeroDivisionError("on purpose"), False),
    ],
)
def test_a_gpu_without_memory(error: BaseException, expected: bool) -> None:
    assert no_gpu_memory(error) == expected


def test_control_characters_do_not_reach_the_terminal(cli: Any) -> None:
    code, _, err = cli("list", "met\x1b[31mhods")
    assert code == 2 and "\x1b" not in err

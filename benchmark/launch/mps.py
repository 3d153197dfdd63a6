"""CUDA's Multi-Process Service (MPS), which lets several processes compute on one GPU at the same time.

Without it their kernels take turns. Each GPU has a service of its own: CUDA shows a process one MIG device only.
https://docs.nvidia.com/deploy/mps
"""

import os
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

from benchmark.errors import ConfigError, wrong
from benchmark.launch.resources import gpu_memory, uuid_of

MPS_CONTROL = "nvidia-cuda-mps-control"

# The standard input ends when the launcher ends, in whichever way. A signal to all processes of a job is for the
# launcher alone: without the service, runs could not save their state.
_SERVE = f"""
trap '' HUP INT QUIT TERM USR1 USR2
mkdir "$CUDA_MPS_PIPE_DIRECTORY" "$CUDA_MPS_LOG_DIRECTORY"
if {MPS_CONTROL} -d >"$1/output" 2>&1 </dev/null
then echo started; cat >/dev/null; echo quit | timeout -s KILL 60 {MPS_CONTROL} >/dev/null 2>&1
else tail -n 1 "$1/output"
fi
rm -rf "$1"
"""


@contextmanager
def mps_of(gpus: Sequence[str]) -> Iterator[dict[str | None, dict[str, str]]]:
    """Start the service of each GPU, and stop it in the end; by GPU what its workers need in their environment.

    ``gpus``: entries of CUDA_VISIBLE_DEVICES. `ConfigError` if a service does not start.
    """
    known = list(gpu_memory()) if gpus else []
    with ExitStack() as stack:
        yield {gpu: stack.enter_context(_service(uuid_of(gpu, known))) for gpu in gpus}


@contextmanager
def _service(gpu: str) -> Iterator[dict[str, str]]:
    # The service counts its GPUs anew, so its workers would take a number for another GPU.
    if gpu.isdigit():
        raise ConfigError(wrong("launcher.mps", True, "false, because nvidia-smi names no GPUs here"))
    temporary = tempfile.gettempdir()
    # A service whose pipes have long paths ends without a message; seen from 88 characters on.
    folder = tempfile.mkdtemp(prefix="mps-", dir=temporary if len(temporary) <= 60 else "/tmp")
    variables = {f"CUDA_MPS_{kind}_DIRECTORY": f"{folder}/{kind.lower()}" for kind in ("PIPE", "LOG")}
    variables["CUDA_VISIBLE_DEVICES"] = gpu
    command, pipe = ["sh", "-c", _SERVE, "sh", folder], subprocess.PIPE
    with subprocess.Popen(
        command, stdin=pipe, stdout=pipe, text=True, env=os.environ | variables, start_new_session=True
    ) as process:
        assert process.stdout is not None
        said = process.stdout.readline().strip()
        if said != "started":
            raise ConfigError(
                wrong("launcher.mps", True, f"false, because {MPS_CONTROL} fails here ({said})")
            )
        yield variables

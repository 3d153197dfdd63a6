"""A machine with two GPUs, the second one in MIG mode with two parts: programs of the driver that know it."""

import os
from pathlib import Path
from typing import Any

import torch
from processes import executable

PARTS = ("MIG-3333-aaaa", "MIG-GPU-2222-bbbb/2/0")
"""Names of a new and of an old driver."""

LISTED = f"""GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-1111-aaaa)
GPU 1: NVIDIA A100-SXM4-40GB (UUID: GPU-2222-bbbb)
  MIG 3g.20gb     Device  0: (UUID: {PARTS[0]})
  MIG 1c.1g.10gb+me Device  1: (UUID: {PARTS[1]})"""


def fake_gpus(folder: Path, monkeypatch: Any, visible: str | None, count: int, control: str = "") -> Path:
    """Put the programs first on PATH, with CUDA_VISIBLE_DEVICES and the number of GPUs that torch shows.

    ``control``: more lines of `nvidia-cuda-mps-control`. It writes each call to the file that is returned: its
    arguments, its input, the GPU, and whether the folder for pipes is there.
    """
    programs, calls = folder / "driver", folder / "calls"
    calls.touch()
    executable(
        programs / "nvidia-smi",
        f'''case "$*" in
-L) echo "{LISTED}";;
"--query-gpu=uuid,memory.total --format=csv,noheader,nounits") echo "GPU-1111-aaaa, 81920
GPU-2222-bbbb, 40960";;
*) exit 2;;
esac''',
    )
    executable(
        programs / "nvidia-cuda-mps-control",
        f"""said=$(cat)
test -d "$CUDA_MPS_PIPE_DIRECTORY" && test -d "$CUDA_MPS_LOG_DIRECTORY" && there=there
echo "$*|$said|$CUDA_VISIBLE_DEVICES|$there|$CUDA_MPS_PIPE_DIRECTORY" >>{calls}
{control}""",
    )
    monkeypatch.setenv("PATH", f"{programs}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: count)
    return calls

"""What the numbers of a run depend on beside its configuration, and what else is noted about how it was made."""

import os
import platform
import socket
from typing import Any

import numpy as np
import torch

from benchmark import code
from benchmark.config.schema import RunConfig
from benchmark.engine.federation import FederatedRun
from benchmark.models.base import networks
from benchmark.runs.data import RunData
from benchmark.system import processor
from datasets.core.registry import get as get_dataset
from partitions.core.registry import get as get_scheme

LIMITS = ("ATEN_CPU_CAPABILITY", "MKL_CBWR", "ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA")
"""Variables that limit the instructions which libraries use, and so change bits."""


def origin_of(config: RunConfig, data: RunData, run: FederatedRun) -> dict[str, Any]:
    """What bits depend on. ``code`` has the digests of the run's own files by name; ``data`` is a fingerprint."""
    device = run.problem.images.device
    limits = [f"{name}={os.environ[name]}" for name in LIMITS if os.environ.get(name)]
    gpu = torch.cuda.get_device_name(device) if device.type == "cuda" else ""
    modules = [get_dataset(config.dataset.name).builder.__module__]
    modules += [networks.get("model.name", config.model.name).__module__]
    modules += [metric.function.__module__ for metric in run.metrics]
    parts = [*(type(rule) for rule in run.method.rules), get_scheme(config.partition.name)]
    return {
        "code": code.own_digests(*parts, modules=modules),
        "engine": code.engine_digest(),
        "data": data.dataset.fingerprint,
        "partition": data.partition.digest,
        "torch": str(torch.__version__),
        "threads": torch.get_num_threads(),
        "dispatch": " ".join([torch.backends.cpu.get_cpu_capability(), *limits]),
        "device": f"{device.type} {gpu}".strip(),
    }


def made_by(config: RunConfig, data: RunData, run: FederatedRun, snapshot: str) -> dict[str, Any]:
    """Where and by which code a run is carried out. ``snapshot``: digest of the code's snapshot."""
    device = run.problem.images.device
    gpu = torch.cuda.get_device_name(device) if device.type == "cuda" else ""
    about = code.made_by()
    return {
        **about,
        "code": about["code"] or snapshot,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "host": socket.gethostname(),
        "processor": gpu or processor(),
        "prepared": str(data.dataset.folder),
        "unseen": list(data.unseen),
        "clients": {
            "class_names": list(data.dataset.classes),
            "attribute_names": list(data.dataset.attributes),
            "counts": data.partition.counts.tolist(),
        },
    }

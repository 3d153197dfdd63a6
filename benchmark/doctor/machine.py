"""Python, packages, cores, GPUs, and the file system of the results folder."""

import os
import platform
import re
import shutil
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator
from importlib.metadata import distributions
from pathlib import Path

from benchmark.doctor import CheckResult, bad
from benchmark.launch.mps import MPS_CONTROL
from benchmark.launch.resources import ask_driver, assign_devices, shared_gpus
from benchmark.launch.settings import LocalSettings
from benchmark.paths import ROOT
from benchmark.system import usable_cores

WORKER_BYTES = 1e9
"""Memory of a worker of preset quick, rounded up."""

CLOCK_SECONDS = 5.0
LEAST_BYTES, LEAST_FILES = 1e9, 20_000
"""Free space below which there is a note. Table 1 of the four papers makes about 5,000 files."""


def python(root: Path = ROOT) -> Iterator[CheckResult]:
    """Versions of Python and of the packages beside those of pyproject.toml and requirements.lock."""
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    least, fact = project["requires-python"].strip(">="), f"{platform.python_version()} in {sys.prefix}"
    if sys.version_info[:2] < tuple(map(int, least.split("."))):
        yield CheckResult(
            "Python", "problem", f"{fact}; expected {least}", f"make PYTHON=python{least} setup"
        )
    else:
        yield CheckResult("Python", "ok", fact)
    versions = {p.name.lower().replace("_", "-"): p.version.partition("+")[0] for p in distributions()}
    needed = [re.split("[<>=~! ]", requirement)[0].lower() for requirement in project["dependencies"]]
    missing = [name for name in needed if name not in versions]
    lock = re.findall(r"^([\w.-]+)==([^\s;]+)", (root / "requirements.lock").read_text(), re.MULTILINE)
    names = {name for name, _ in lock} & versions.keys()
    other = sorted(f"{name} {versions[name]}" for name in names if (name, versions[name]) not in lock)
    if missing:
        yield CheckResult("packages", "problem", f"missing: {', '.join(missing)}", "make setup")
    elif other:
        shown = ", ".join(other[:6]) + " ..." * (len(other) > 6)
        fact = f"{len(other)} differ from requirements.lock: {shown}"
        yield CheckResult("packages", "note", fact, "make setup; bits of results may differ")
    else:
        yield CheckResult("packages", "ok", f"{len(names)}, as in requirements.lock")


def cores(cgroup: Path = Path("/sys/fs/cgroup")) -> CheckResult:
    """Cores and memory that this process may use, by its affinity and its control group."""

    def limit(name: str) -> list[int]:
        path = cgroup / name
        return [int(word) for word in path.read_text().split() if word.isdigit()] if path.exists() else []

    usable, quota = usable_cores(), limit("cpu.max")  # microseconds, and of how many
    workers = min(usable, max(1, quota[0] // quota[1])) if len(quota) == 2 else usable
    memory = min([os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"), *limit("memory.max")])
    fitting = min(workers, max(1, int(memory // WORKER_BYTES)))
    fact = f"{usable} of {os.cpu_count()} usable, time of {workers}; memory {memory / 1e9:.1f} GB"
    if fitting < usable:
        return CheckResult("cores", "note", fact, f"workers={fitting}: each needs a core and about 1 GB")
    return CheckResult("cores", "ok", fact)


def gpu(device: str) -> CheckResult:
    """The GPUs that torch sees; a problem if one is asked for and there is none."""
    import torch

    versions = ask_driver("--query-gpu=driver_version --format=csv,noheader")
    driver = ", ".join(dict.fromkeys(versions)) or "none"
    if not torch.cuda.is_available():
        no_driver = driver == "none"
        remedy = "Only preset paper needs one" if no_driver else "CUDA_VISIBLE_DEVICES, or a newer driver"
        fact = f"none for torch {torch.__version__}; driver {driver}"
        return CheckResult("GPU", bad(device.startswith("cuda")), fact, remedy)
    cards = [torch.cuda.get_device_properties(index) for index in range(torch.cuda.device_count())]
    names = ", ".join(f"{card.name} {card.total_memory / 1e9:.0f} GB" for card in cards)
    fact = f"{names}; driver {driver}, CUDA {torch.version.cuda}, bf16"
    if torch.cuda.is_bf16_supported():
        return CheckResult("GPU", "ok", fact)
    return CheckResult("GPU", "note", f"{fact} missing", "Leave precision.amp=false")


def mps(settings: LocalSettings) -> Iterator[CheckResult]:
    """Whether runs that share a GPU can compute at the same time; no line where no run shares one."""
    if not shared_gpus(assign_devices(sys.maxsize, settings)):
        return
    missing = "" if shutil.which(MPS_CONTROL) else f", and {MPS_CONTROL} is missing"
    fact = f"several runs share a GPU with launcher.mps={str(settings.mps).lower()}{missing}"
    if settings.mps and not missing:
        yield CheckResult("MPS", "ok", fact)
    else:
        remedy = "it comes with NVIDIA's driver" if missing else "launcher.mps=true, or they take turns"
        yield CheckResult("MPS", bad(settings.mps), fact, remedy)


def same_bits(device: str) -> CheckResult:
    """Whether a small convolution and its gradient give the same bits twice, with cuDNN set as in a run."""
    import torch

    from benchmark.runs.build import choose_device

    place = choose_device(device)
    images, filters = (
        torch.linspace(-1, 1, 16 * 8 * size**2, device=place).reshape(16, 8, size, size).requires_grad_()
        for size in (32, 3)
    )

    def once() -> list[torch.Tensor]:
        outputs = torch.nn.functional.conv2d(images, filters, padding=1)
        return [outputs.detach(), *torch.autograd.grad(outputs.square().sum(), [images, filters])]

    with torch.backends.cudnn.flags(enabled=True, benchmark=False, deterministic=True):
        same = all(torch.equal(*pair) for pair in zip(once(), once(), strict=True))
    fact = f"a convolution on {place.type}, twice: "
    if same:
        return CheckResult("same bits", "ok", f"{fact}the same bits")
    return CheckResult("same bits", "note", f"{fact}other bits", "Try another driver or torch")


def folder(results: Path) -> Iterator[CheckResult]:
    """Try all that runs need of the results folder in a new folder there, which is removed."""
    place = next(path for path in (results.absolute(), *results.absolute().parents) if path.exists())
    failed = ["atomic rename", "exclusive creation"]
    try:
        with tempfile.TemporaryDirectory(prefix=".doctor-", dir=place) as name:
            old, new = Path(name, "old"), Path(name, "new")
            old.write_text("old")
            new.write_text("new")
            ahead = new.stat().st_mtime - time.time()
            os.replace(new, old)
            if old.read_text() == "new" and not new.exists():
                failed.remove("atomic rename")
            try:
                os.close(os.open(old, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
            except FileExistsError:
                failed.remove("exclusive creation")
    except OSError as error:
        fact = f"{place} cannot be written ({error.strerror})"
        yield CheckResult("results", "problem", fact, "results=FOLDER")
        return
    if failed:
        remedy = "results=FOLDER on another file system: here two processes could work on one run"
        yield CheckResult("results", "problem", f"{place}: no {' and no '.join(failed)}", remedy)
    else:
        yield CheckResult("results", "ok", f"{place}: written, renamed and locked as needed")
    if abs(ahead) > CLOCK_SECONDS:
        fact = f"the file system is {abs(ahead):,.0f} s {'ahead of' if ahead > 0 else 'behind'} this machine"
        yield CheckResult("clock", "note", fact, "Set the clocks (NTP). Runs are safe; times in logs are not")
    free, counts = shutil.disk_usage(place).free, os.statvfs(place)
    files = counts.f_favail if counts.f_files else LEAST_FILES  # some file systems do not count them
    fact = f"{free / 1e9:,.1f} GB free" + (f", {files:,} files" if counts.f_files else "")
    if free < LEAST_BYTES or files < LEAST_FILES:
        state = bad(free < LEAST_BYTES / 100 or not files)
        yield CheckResult("space", state, fact, "results=FOLDER on another disk")
    else:
        yield CheckResult("space", "ok", fact)

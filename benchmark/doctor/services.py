"""Programs and services beside Python: SLURM, W&B, LaTeX and a browser."""

import netrc
import os
import re
import shutil
import socket
import subprocess
from urllib.parse import urlsplit

from benchmark.doctor import CheckResult, bad
from benchmark.launch.slurm.queue import SlurmQueue, ask

STYLES = ("booktabs", "siunitx")
BROWSER = ("chromium", "chromedriver")
SECONDS = 3.0
"""The longest wait for a server."""


def slurm(asked: bool) -> CheckResult:
    """Partitions, GPUs, limits and accounting; a problem if SLURM is asked for and cannot be used."""
    if shutil.which("sbatch") is None:
        remedy = "For launcher=slurm use a login node of a cluster"
        return CheckResult("SLURM", bad(asked), "no `sbatch` here", remedy)
    answer, config = ask("sinfo", "-h", "-o", "%P|%a|%D nodes|%l|%G"), ask("scontrol", "show", "config")
    if answer is None or config is None:
        remedy = "See what `sinfo` says; ask the cluster's staff"
        return CheckResult("SLURM", bad(asked), "it does not answer", remedy)
    partitions = [line.strip() for line in answer.splitlines()]
    shown = [line.replace("|(null)", "").replace("|", ", ") for line in partitions[:4]]
    shown += [f"{len(partitions) - 4} more"] if len(partitions) > 4 else []
    kept = re.search(r"^AccountingStorageType\s*=\s*\S*slurmdbd", config, re.MULTILINE)
    limits = f"arrays up to {SlurmQueue.largest_array():,}; accounting {'on' if kept else 'off'}"
    fact = "; ".join([*shown, limits])
    if not any("|up|" in line for line in partitions):
        return CheckResult("SLURM", bad(asked), fact, "No partition is up: ask the cluster's staff")
    return CheckResult("SLURM", "ok", fact)


def wandb() -> CheckResult:
    """Whether W&B has a key here, and whether its server can be reached."""
    address = urlsplit(os.environ.get("WANDB_BASE_URL") or "https://api.wandb.ai")
    host, port = address.hostname or "", address.port or (80 if address.scheme == "http" else 443)
    try:
        key = bool(os.environ.get("WANDB_API_KEY") or netrc.netrc().authenticators(host))
    except (OSError, netrc.NetrcParseError):
        key = False
    fact = f"{'' if key else 'not '}logged in; {host} "
    try:
        socket.create_connection((host, port), SECONDS).close()
    except OSError:
        remedy = "tracking.mode=offline, and `wandb sync` later"
        return CheckResult("W&B", "note", f"{fact}cannot be reached", remedy)
    return CheckResult("W&B", "ok" if key else "note", f"{fact}can be reached", "" if key else "wandb login")


def latex() -> CheckResult:
    """Whether tables can be compiled."""
    if shutil.which("pdflatex") is None or shutil.which("kpsewhich") is None:
        fact = "no `pdflatex`; tables are written all the same"
        return CheckResult("LaTeX", "note", fact, "TeX Live compiles them")
    calls = [["kpsewhich", f"{style}.sty"] for style in STYLES]
    codes = [subprocess.run(call, stdout=subprocess.DEVNULL).returncode for call in calls]
    if missing := [style for style, code in zip(STYLES, codes, strict=True) if code]:
        return CheckResult("LaTeX", "note", f"no {', '.join(missing)}", "Install these packages of TeX Live")
    return CheckResult("LaTeX", "ok", f"pdflatex with {', '.join(STYLES)}")


def chromium() -> CheckResult:
    """Whether there is a browser for tests of the report."""
    if missing := [name for name in BROWSER if shutil.which(name) is None]:
        fact = f"no {', '.join(missing)}; only tests of the report need it"
        return CheckResult("Chromium", "note", fact, "Debian's packages chromium and chromium-driver")
    return CheckResult("Chromium", "ok", " and ".join(BROWSER))

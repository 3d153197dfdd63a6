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
        return CheckResult(
            "SLURM", bad(asked), "no `sbatch` here", "For launcher=slurm use a login node of a cluster"
        )
    answer, config = ask("sinfo", "-h", "-o", "%P|%a|%D nodes|%l|%G"), ask("scontrol", "show", "config")
    if answer is None or config is None:
        return CheckResult(
            "SLURM", bad(asked), "it does not answer", "See what `sinfo` says; ask the cluster's staff"
        )
    partitions = [line.strip() for line in answer.splitlines()]
    shown = "; ".join(
        ", ".join(part for part in line.split("|") if part != "(null)") for line in partitions[:4]
    )
    more = f"; {len(partitions) - 4} more" if len(partitions) > 4 else ""
    kept = re.search(r"^AccountingStorageType\s*=\s*\S*slurmdbd", config, re.MULTILINE)
    found = (
        f"{shown}{more}; arrays up to {SlurmQueue.largest_array():,}; accounting {'on' if kept else 'off'}"
    )
    if not any("|up|" in line for line in partitions):
        return CheckResult("SLURM", bad(asked), found, "No partition is up: ask the cluster's staff")
    return CheckResult("SLURM", "ok", found)


def wandb() -> CheckResult:
    """Whether W&B has a key here, and whether its server can be reached."""
    address = urlsplit(os.environ.get("WANDB_BASE_URL") or "https://api.wandb.ai")
    host, port = address.hostname or "", address.port or (80 if address.scheme == "http" else 443)
    try:
        key = bool(os.environ.get("WANDB_API_KEY") or netrc.netrc().authenticators(host))
    except (OSError, netrc.NetrcParseError):
        key = False
    found = f"{'' if key else 'not '}logged in; {host} "
    try:
        socket.create_connection((host, port), SECONDS).close()
    except OSError:
        return CheckResult(
            "W&B", "note", f"{found}cannot be reached", "tracking.mode=offline, and `wandb sync` later"
        )
    return CheckResult("W&B", "ok" if key else "note", f"{found}can be reached", "" if key else "wandb login")


def latex() -> CheckResult:
    """Whether tables can be compiled."""
    if shutil.which("pdflatex") is None or shutil.which("kpsewhich") is None:
        return CheckResult(
            "LaTeX", "note", "no `pdflatex`; tables are written all the same", "TeX Live compiles them"
        )
    installed = {
        style: subprocess.run(["kpsewhich", f"{style}.sty"], stdout=subprocess.DEVNULL) for style in STYLES
    }
    if missing := [style for style, done in installed.items() if done.returncode]:
        return CheckResult("LaTeX", "note", f"no {', '.join(missing)}", "Install these packages of TeX Live")
    return CheckResult("LaTeX", "ok", f"pdflatex with {', '.join(STYLES)}")


def chromium() -> CheckResult:
    """Whether there is a browser for tests of the report."""
    if missing := [name for name in BROWSER if shutil.which(name) is None]:
        found = f"no {', '.join(missing)}; only tests of the report need it"
        return CheckResult("Chromium", "note", found, "Debian's packages chromium and chromium-driver")
    return CheckResult("Chromium", "ok", " and ".join(BROWSER))

"""The folders of this checkout."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
CONF = ROOT / "conf"
PUBLISHED = ROOT / "results" / "published"

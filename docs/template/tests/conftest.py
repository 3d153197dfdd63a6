"""FedTables finds this repository, whatever the shell has set."""

import os
from pathlib import Path

os.environ["FEDTABLES_PATH"] = str(Path(__file__).resolve().parents[1])

"""The FedTables benchmark."""

import sys

from benchmark.paths import ROOTS

# The user's repositories hold modules of `methods`, `partitions` and `datasets`.
sys.path += [str(root) for root in ROOTS if str(root) not in sys.path]

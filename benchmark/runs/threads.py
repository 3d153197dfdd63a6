"""The number of threads of a run. With another number the last bits of its results may differ."""

import os

THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
)
"""Environment variables that numerical libraries read when they are imported."""


def limit_threads(count: int) -> None:
    """Let torch and NumPy use ``count`` threads."""
    import torch

    torch.set_num_threads(count)
    # A worker has the number from its environment; then the libraries need not be searched.
    if any(os.environ.get(name) != str(count) for name in THREAD_VARIABLES):
        from threadpoolctl import threadpool_limits

        threadpool_limits(count)

"""Carry out many runs, in this process, in worker processes or on a cluster."""

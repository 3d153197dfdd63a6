"""Carry out many runs as job arrays of a SLURM cluster."""

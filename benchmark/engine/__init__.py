"""Trains and evaluates a federation. Knows no disk and no configuration files."""

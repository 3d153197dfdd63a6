"""Measurements of speed, memory and scale."""

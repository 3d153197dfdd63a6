"""Reads finished runs and writes tables and pictures; never trains."""

"""The command line: one file per family of commands, each a thin layer over runs and reports."""

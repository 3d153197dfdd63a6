"""From a configuration to a finished run on disk, and from a table to its runs."""

"""The harness: engine (training), runs (from a config to a finished folder), reports (from folders to tables)."""

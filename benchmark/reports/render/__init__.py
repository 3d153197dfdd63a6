"""One renderer for each output format of a table."""

"""Client selection: one file per rule."""

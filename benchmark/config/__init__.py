"""The configuration of a run: its schema, its composition from conf/, its identity."""

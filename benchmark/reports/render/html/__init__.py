"""The report: all tables of a results folder on one page that needs no network."""

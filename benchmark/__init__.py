"""The FedTables benchmark."""

from benchmark import sources

sources.install()

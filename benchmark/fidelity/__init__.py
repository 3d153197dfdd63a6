"""The fidelity ledger: where paper, authors' code and the paper's own text disagree, and what a switch changes."""

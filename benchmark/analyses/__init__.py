"""Analyses of the papers that are no table of accuracies: what they compute, one file each."""

"""The algorithms: one file each, the vocabulary they share, and the registry that finds them."""

"""What the functions of `benchmark.api` do: carry out what is missing, and write what comes of it."""

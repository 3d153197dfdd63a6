"""Data sets that need no download: scikit-learn's digits as stand-ins, and a generated one."""

"""The interfaces of a method, their registry, and vectors of parameters."""

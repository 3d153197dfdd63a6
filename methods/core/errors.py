"""The error of a method that cannot be built."""

from benchmark.errors import UserError


class MethodError(UserError):
    """A mistake in how a method is named, configured or combined; the message is meant for the user."""

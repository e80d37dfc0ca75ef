"""Failures outside of the handler that are treated like an exception of the handler."""

from slipway_handler import Reject


class Mismatch(Reject):
    """A payload does not match the schema."""

    cause = "SchemaMismatch"


class HandlerTimeout(Exception):
    """A call of the handler did not end in time."""


class AttemptsUsed(Exception):
    """Other consumers have made all attempts at the message."""


class HandlerCrash(Exception):
    """An earlier process crashed while it handled the message."""

"""Failures that no handler raises: they are treated like an exception of the handler."""

from slipway_handler import Reject


class Mismatch(Reject):
    """Stands for a payload that is not what the schema says."""

    cause = "SchemaMismatch"


class HandlerTimeout(Exception):
    """Stands for a call of the handler that did not end in time."""


class HandlerCrash(Exception):
    """Stands for a message at which the process ended."""

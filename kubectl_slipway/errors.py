"""Errors with a remedy, and the exit codes of all commands."""

from __future__ import annotations

from enum import IntEnum


class Exit(IntEnum):
    """Exit codes; each command uses them with the same meaning."""

    OK = 0
    """The command succeeded and found no problem."""
    PROBLEM = 1
    """The command found a problem, or the operation failed."""
    USAGE = 2
    """An argument is wrong."""
    NOT_FOUND = 3
    """The object or kind does not exist."""
    FORBIDDEN = 4
    """You are not logged in, or your user lacks a permission."""
    UNREACHABLE = 5
    """kubectl is missing, cannot use the kubeconfig or cannot reach the API server."""
    TIMEOUT = 6
    """`--wait` reached its time limit."""
    INTERRUPTED = 130
    """Ctrl-C."""


class PluginError(Exception):
    """An error that ends the command.

    Attributes:
        message: What is wrong.
        remedy: How to fix it; empty if the message says it.
    """

    def __init__(self, message: str, remedy: str = "", code: Exit = Exit.PROBLEM) -> None:
        """Keep message, remedy and exit code."""
        super().__init__(message)
        self.message = message
        self.remedy = remedy
        self.code = code


class ApiError(PluginError):
    """The API server refused a request.

    Attributes:
        reason: Reason of the API, such as `NotFound`.
    """

    def __init__(self, status: int, reason: str, message: str) -> None:
        """Choose the exit code by the status."""
        remedy, code = "", Exit.PROBLEM
        if status == 401:
            remedy, code = "Log in again, or check --context and --kubeconfig.", Exit.FORBIDDEN
        elif status == 403:
            remedy = "Ask an administrator for this permission."
            code = Exit.FORBIDDEN
        elif status == 404:
            code = Exit.NOT_FOUND
        super().__init__(message, remedy, code)
        self.status = status
        self.reason = reason

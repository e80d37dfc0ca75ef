"""Level-triggered controller runtime: sources, store, queue, controllers, manager."""

from libs.common.runtime.backoff import BackoffPolicy
from libs.common.runtime.cache import Cache, Projection
from libs.common.runtime.context import Context
from libs.common.runtime.controller import (
    Controller,
    Predicate,
    Result,
    Watch,
)
from libs.common.runtime.manager import Manager
from libs.common.runtime.operator import Operator, main
from libs.common.runtime.runner import SERVER_WARNING
from libs.common.runtime.store import Change, IndexFunction

__all__ = [
    "SERVER_WARNING",
    "BackoffPolicy",
    "Cache",
    "Change",
    "Context",
    "Controller",
    "IndexFunction",
    "Manager",
    "Operator",
    "Predicate",
    "Projection",
    "Result",
    "Watch",
    "main",
]

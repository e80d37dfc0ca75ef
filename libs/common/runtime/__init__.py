"""Level-triggered controller runtime: sources, store, queue, controllers, manager."""

from libs.common.runtime.cache import Cache, Projection
from libs.common.runtime.context import Context
from libs.common.runtime.controller import Controller, Result, Watch
from libs.common.runtime.manager import Manager
from libs.common.runtime.operator import Operator, main

__all__ = [
    "Cache",
    "Context",
    "Controller",
    "Manager",
    "Operator",
    "Projection",
    "Result",
    "Watch",
    "main",
]

"""Level-triggered controller runtime: sources, store, queue, controllers, manager."""

from libs.common.errors import ForeignObject
from libs.common.plan import Apply, Create, Delete, Outcome, Patch, Step, StepFailure
from libs.common.runtime.cache import Cache, Projection
from libs.common.runtime.context import Context
from libs.common.runtime.controller import Controller, Result, Watch
from libs.common.runtime.manager import Manager
from libs.common.runtime.operator import Operator, main

__all__ = [
    "Apply",
    "Cache",
    "Context",
    "Controller",
    "Create",
    "Delete",
    "ForeignObject",
    "Manager",
    "Operator",
    "Outcome",
    "Patch",
    "Projection",
    "Result",
    "Step",
    "StepFailure",
    "Watch",
    "main",
]

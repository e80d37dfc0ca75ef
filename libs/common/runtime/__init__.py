"""Level-triggered controller runtime: sources, store, queue, controllers, manager."""

from libs.common.runtime.backoff import BackoffPolicy as BackoffPolicy
from libs.common.runtime.cache import Cache as Cache
from libs.common.runtime.cache import Projection as Projection
from libs.common.runtime.context import Context as Context
from libs.common.runtime.controller import Controller as Controller
from libs.common.runtime.controller import Result as Result
from libs.common.runtime.controller import Watch as Watch
from libs.common.runtime.manager import Manager as Manager
from libs.common.runtime.operator import Operator as Operator
from libs.common.runtime.operator import main as main
from libs.common.runtime.runner import SERVER_WARNING as SERVER_WARNING
from libs.common.runtime.store import Change as Change
from libs.common.runtime.store import IndexFunction as IndexFunction

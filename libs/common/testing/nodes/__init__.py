"""Simulated nodes for any API server: scheduler, kubelets, volumes, and Deployments if asked for.

Everything goes over HTTP with one client, so the same nodes serve the built-in API server and a
real one. Pods become Running and Ready, stop within their grace period, and run nothing. An image
from a registry under `.invalid` cannot be pulled, as on a real node.
"""

from libs.common.testing.nodes.simulator import Nodes
from libs.common.testing.nodes.timing import Timing

__all__ = ["Nodes", "Timing"]

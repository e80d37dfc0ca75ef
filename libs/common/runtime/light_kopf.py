"""kopf, imported without the official client of Kubernetes.

If the official client is installed, kopf imports it for two classes that handlers can use as
owners. Our handlers do not, and the client takes 20 MiB. So this module hides the client while kopf
is imported.
"""

import sys

_OFFICIAL = "kubernetes"

_hidden = _OFFICIAL not in sys.modules
if _hidden:
    sys.modules[_OFFICIAL] = None  # type: ignore[assignment]  # None makes an import fail
try:
    import kopf
finally:
    if _hidden:
        del sys.modules[_OFFICIAL]

__all__ = ["kopf"]

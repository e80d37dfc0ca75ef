"""kopf, imported without the official client of Kubernetes.

Where that is installed, kopf imports it for two classes that handlers may use as owners. None of
ours does, and it takes 20 MiB. So it looks as if it was not installed while kopf is imported.
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

"""Whether two pod templates mean the same, although they are written differently.

The API server decides: it fills in the defaults of its version and drops what has no effect, in the
same way as for the template of a Deployment. A dry run of a PodTemplate shows the result and stores
nothing. No controller acts on PodTemplates, so the permission to create them permits nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from libs.common.client import Client
from libs.common.crd import PodTemplate
from libs.common.kinds import Kind, Manifest
from libs.common.quantity import same_quantity

POD_TEMPLATE: Final = Kind("", "v1", "PodTemplate", "podtemplates")
_QUANTITIES: Final = frozenset({("emptyDir", "sizeLimit"), ("resourceFieldRef", "divisor")})
"""Fields of a pod template that hold a quantity."""
_QUANTITY_MAPS: Final = frozenset(
    {("resources", "limits"), ("resources", "requests"), ("spec", "overhead")}
)
"""Fields of a pod template that hold a map of quantities."""


async def normalize(
    client: Client, namespace: str, template: PodTemplate, warn: Callable[[str], None] | None = None
) -> Manifest:
    """Return a template as the API server would store it.

    Args:
        client: Client of the API server.
        namespace: Namespace of the pods.
        template: The template.
        warn: Called with each warning of the API server.

    Raises:
        ApiError: The API server refuses the template, or the dry run.
    """
    metadata = template.metadata
    wanted: Manifest = {
        "metadata": {
            "labels": metadata.labels,
            "annotations": metadata.annotations,
            "finalizers": metadata.finalizers,
        },
        "spec": template.spec,
    }
    manifest: Manifest = {
        "apiVersion": POD_TEMPLATE.api_version,
        "kind": POD_TEMPLATE.kind,
        "metadata": {"generateName": "podset-", "namespace": namespace},
        "template": wanted,
    }
    response = await client.create(POD_TEMPLATE, manifest, dry_run=True, warn=warn)
    normal: Manifest = response["template"]
    return normal


def means_same(left: Any, right: Any, path: tuple[str, ...] = ("", "")) -> bool:
    """Return whether two normalized templates, or two values at a path of them, mean the same.

    The API server keeps the format of a quantity: `1Ki` and `1024` are equal, but not as text.
    """
    if isinstance(left, Mapping) and isinstance(right, Mapping):
        return left.keys() == right.keys() and all(
            means_same(value, right[name], (*path, name)) for name, value in left.items()
        )
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(
            means_same(first, second, path) for first, second in zip(left, right, strict=True)
        )
    if left == right:
        return True
    is_quantity = path[-2:] in _QUANTITIES or path[-3:-1] in _QUANTITY_MAPS
    return is_quantity and same_quantity(left, right)

"""What service accounts may do, as the API server says."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from libs.common.client import Client
from libs.common.kinds import Key

_PATH: Final = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
_ACCOUNTS: Final = "system:serviceaccounts"


async def is_allowed(client: Client, account: Key, attributes: Mapping[str, str]) -> bool:
    """Return whether a service account may do something.

    `kubectl auth can-i` would need the CRD of a kind to answer.

    Args:
        client: Connection that may create SubjectAccessReviews.
        account: Namespace and name of the service account.
        attributes: Fields of `resourceAttributes`, such as verb, group, resource, name; without a
            namespace, in all of them.
    """
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {
            "user": f"system:serviceaccount:{account.namespace}:{account.name}",
            "groups": [_ACCOUNTS, f"{_ACCOUNTS}:{account.namespace}", "system:authenticated"],
            "resourceAttributes": dict(attributes),
        },
    }
    answer = await client.raw("POST", _PATH, review)
    return bool(answer["status"]["allowed"])

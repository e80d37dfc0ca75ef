"""A fake Kubernetes API server for tests: real HTTP, and the rules of the real server.

Any client can use it: the client of the library, kopf, kubectl, a subprocess. `parity_*_test.py`
compares its responses, byte for byte except names and times, with a real kube-apiserver.

Modeled: create, get, list (selectors, pages, resource version semantics, metadata only), update,
JSON, merge and strategic patches, server-side apply with managedFields, delete (preconditions,
grace periods, finalizers, propagation), `/status`, `/scale`, `/ephemeralcontainers`, `/binding` and
`/eviction`; generations; watches with bookmarks and initial events; discovery, OpenAPI v3 and the
tables of `kubectl get`; CRDs with schema defaults, pruning, validation and CEL rules; defaults of
the built-in kinds that operators make; owner garbage collection, namespace deletion and storage
protection; RBAC and reviews of it; both event APIs.

Validating webhooks and aggregated APIs are plain functions: `FakeApi.admit`, `FakeApi.aggregate`.

Not modeled: most formats in CRDs, the cost limits of CEL, conversion and mutating webhooks,
admission policies, quota, most validation of built-in kinds, kubelet, scheduler and workload
controllers, `exec`, `log` and proxies, responses in protobuf. Tests of these need `kube_apiserver`
or a cluster.
"""

from libs.common.testing.fakeapi.extensions import Review
from libs.common.testing.fakeapi.requests import Request
from libs.common.testing.fakeapi.server import FakeApi
from libs.common.testing.fakeapi.statuses import StatusError

__all__ = ["FakeApi", "Request", "Review", "StatusError"]

"""A fake Kubernetes API server for tests: real HTTP, and the rules of the real server."""

from libs.common.testing.fakeapi.requests import Request
from libs.common.testing.fakeapi.server import FakeApi
from libs.common.testing.fakeapi.statuses import StatusError

__all__ = ["FakeApi", "Request", "StatusError"]

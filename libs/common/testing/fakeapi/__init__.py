"""A fake Kubernetes API server for tests, which speaks real HTTP and keeps the real server's rules."""

from libs.common.testing.fakeapi.requests import Request
from libs.common.testing.fakeapi.server import FakeApi
from libs.common.testing.fakeapi.statuses import StatusError

__all__ = ["FakeApi", "Request", "StatusError"]

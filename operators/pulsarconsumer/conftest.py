"""Fixtures of the tests of operator and app against a broker that asks who it is."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from libs.common.testing.certificates import create_certificates
from libs.common.testing.pulsar import Broker, PulsarMissing
from libs.common.testing.pulsar_security import CERTIFICATE_ROLE


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make certificates of the broker and of two clients, one of which has no rights."""
    folder = tmp_path_factory.mktemp("certificates")
    return create_certificates(folder, clients=(CERTIFICATE_ROLE, "stranger"))


@pytest.fixture(scope="session")
def strict_broker(certificates: Path) -> Iterator[Broker]:
    """Run a broker that asks who it is, and speaks TLS."""
    try:
        strict = Broker(tokens=True, certificates=certificates)
    except PulsarMissing as err:
        pytest.skip(str(err))
    with strict:
        yield strict

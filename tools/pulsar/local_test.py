"""A broker on this machine needs its ports."""

from __future__ import annotations

import socket

import pytest

from tools.cluster.errors import ToolError
from tools.pulsar.local import check_ports


def test_port_that_is_taken_is_told_with_its_option() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]

        with pytest.raises(ToolError, match=rf"Port {port}: .*--http-port"):
            check_ports((0, port))

"""Run the simulator for an API server: `python -m lab.kubevirt_sim --kubeconfig FILE`."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import ssl
import sys

import structlog

from lab.kubevirt_sim.guests import GuestClusters
from lab.kubevirt_sim.server import ActionServer
from lab.kubevirt_sim.settings import SimulatorSettings
from lab.kubevirt_sim.simulator import KubeVirtSim
from lab.kubevirt_sim.timing import Timing
from libs.common.config import load_config
from libs.common.errors import ConfigError, SlipwayError
from libs.common.logs import configure_logs, install_excepthooks
from libs.common.settings import parse_settings
from libs.common.settings.addresses import parse_bind_address

log = structlog.get_logger(__name__)


async def run(settings: SimulatorSettings) -> int:
    """Run until SIGTERM or SIGINT; returns the exit status."""
    config = await load_config(settings.kubeconfig, settings.context)
    sim = KubeVirtSim(config, timing=Timing(), settings=settings)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    async with contextlib.AsyncExitStack() as stack:
        await stack.enter_async_context(sim)
        server = build_server(sim, settings)
        if server is not None:
            await stack.enter_async_context(server)
            log.info("Serving subresources and webhooks", port=server.port)
        else:
            log.info("Serving no subresources", hint="--action-address")
        guests = build_guests(sim, settings)
        if guests is not None:
            await stack.enter_async_context(guests)
            log.info("Serving the APIs of clusters of guests", port=guests.port)
        stopped = asyncio.create_task(stop.wait())
        ended = asyncio.create_task(sim.ended())
        await asyncio.wait({stopped, ended}, return_when=asyncio.FIRST_COMPLETED)
        stopped.cancel()
        ended.cancel()
        return 0 if stop.is_set() else 1


def build_server(sim: KubeVirtSim, settings: SimulatorSettings) -> ActionServer | None:
    """Build the server of the subresources as the settings say; None for none."""
    address = parse_bind_address(settings.action_address)
    if address is None:
        return None
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(settings.certificate_file, settings.key_file)
    return ActionServer(sim.client, sim.clock, address.host, address.port, tls)


def build_guests(sim: KubeVirtSim, settings: SimulatorSettings) -> GuestClusters | None:
    """Build the clusters that guests make as the settings say; None for none."""
    address = parse_bind_address(settings.guest_address)
    if address is None:
        return None
    return GuestClusters(sim.client, sim.list_instances, address.host, address.port)


def main() -> int:
    """Read the settings and run."""
    settings = parse_settings(SimulatorSettings, sys.argv[1:])
    configure_logs(settings.log_level, settings.log_format)
    install_excepthooks()
    try:
        return asyncio.run(run(settings))
    except (ConfigError, SlipwayError, OSError) as err:
        print(f"kubevirt-sim: {err}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    raise SystemExit(main())

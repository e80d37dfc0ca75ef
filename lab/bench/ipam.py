"""Time how long claims wait for their addresses.

The operator is a separate process with a real kube-apiserver; claims come from one client, 64 at a
time. A claim is timed from the response to its create until a watch shows its address.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from ipaddress import ip_address
from pathlib import Path
from typing import Final

from rich.console import Console

from lab.bench import ipam_peer
from lab.bench.counters import count_writes, subtract
from lab.bench.ipam_client import Claims, Requester
from lab.bench.pages import describe_load, describe_machine, save_report, write_page
from lab.bench.pods import make_namespace
from lab.bench.processes import OperatorProcess, percentile, read_cpu
from libs.common.client import Client
from libs.common.kinds import Manifest, build_object
from libs.common.reading import text_at
from libs.common.testing.apiserver import ControlPlane
from libs.common.testing.serving import serve
from operators.ipam.api import RESOURCES
from operators.ipam.api.v1alpha1.claims import IP_CLAIM
from operators.ipam.api.v1alpha1.pools import IP_POOL
from tools.cluster.command_line import Parser

OPERATOR: Final = "operator"
_PROCESSES: Final = (OPERATOR, "kube-apiserver", "etcd", "client")
_TAKEN: Final = 0.1
"""Share of a pool that is taken before the rest is asked for together."""
_PAIR_BLOCK: Final = "10.96.0.0/17"
_SETTINGS: Final = {"WATCH_NAMESPACES": "*", "CLUSTER_API": "true"}
_ROUNDS: Final = 3
"""How often this checkout and an earlier one take turns."""
_GROWTH: Final = ("10.64.0.0/24", "10.65.0.0/20", "10.66.0.0/16")
"""Pools of 254, 4,094 and 65,534 addresses."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """The number of claims that are created together.

    Attributes:
        claims: Of the empty and of the nearly full pool.
        growth: Of each growing pool.
        compared: Results of ipam and of its peer.
    """

    claims: int
    growth: int
    compared: int


@dataclass(slots=True)
class Row:
    """The measurements of one scenario.

    Attributes:
        scenario: What was done.
        claims: How many claims came together.
        waits: Seconds from the create of each claim to its address.
        seconds: Seconds from the first create to the last address.
        writes: Writes of the operator, by resource; Events count like any other.
        cpu_seconds: CPU time of each process, by its name.
    """

    scenario: str
    claims: int
    waits: list[float]
    seconds: float
    writes: Mapping[str, float]
    cpu_seconds: Mapping[str, float]

    @property
    def writes_each(self) -> float:
        """Writes of the operator for each claim."""
        return sum(self.writes.values()) / self.claims


@dataclass(slots=True)
class Report:
    """The measurements of a run.

    Attributes:
        load: Processes that wanted a core in the minute before.
        rows: One for each scenario.
        turns: Rows of an earlier checkout and of this one, in turns.
    """

    load: float = 0.0
    rows: list[Row] = field(default_factory=list)
    turns: list[Row] = field(default_factory=list)


def build_claim(name: str, namespace: str, pool: str) -> Manifest:
    """Build a claim of a pool."""
    return build_object(IP_CLAIM, name, namespace, spec={"poolRef": {"name": pool}})


_OURS_FOR_CAPI: Final = "IPAddressClaims served by ipam"


def build_request(name: str, namespace: str, pool: str) -> Manifest:
    """Build a claim of Cluster API for a pool of ours."""
    reference = {"apiGroup": IP_POOL.group, "kind": IP_POOL.kind, "name": pool}
    return build_object(ipam_peer.CLAIM, name, namespace, spec={"poolRef": reference})


OURS: Final = Claims(IP_CLAIM, build_claim, lambda claim: bool(text_at(claim, "status", "address")))
"""Claims of ipam."""
PEER: Final = Claims(ipam_peer.CLAIM, ipam_peer.build_claim, ipam_peer.is_served)
"""Claims of the peer."""
REQUESTS: Final = Claims(ipam_peer.CLAIM, build_request, ipam_peer.is_served)
"""Claims of Cluster API that ipam serves."""


def build_pool(name: str, *addresses: str) -> Manifest:
    """Build a pool; the prefix is for IPAddresses of Cluster API."""
    spec = {"family": "IPv4", "addresses": list(addresses), "prefix": 17}
    return build_object(IP_POOL, name, spec=spec)


async def measure(
    plane: ControlPlane, requester: Requester, pid: int, scenario: str, pool: str, count: int
) -> Row:
    """Make claims of a pool together and measure what it took."""
    pids = {OPERATOR: pid, **plane.pids, "client": os.getpid()}
    before, cpu = await count_writes(plane.config), read_cpu(pids)
    started = time.monotonic()
    waits = await requester.request(pool, count, f"{pool}-claim")
    seconds = time.monotonic() - started
    await asyncio.sleep(1.0)
    writes = subtract(await count_writes(plane.config), before)
    # The creates of the claims are ours.
    kept = subtract(writes, {f"POST {requester.claims.kind.plural}": count})
    used = {name: after - cpu[name] for name, after in read_cpu(pids).items()}
    return Row(scenario, count, waits, seconds, kept, used)


async def run(
    plane: ControlPlane, folder: Path, sizes: Sizes, before: Path | None = None
) -> Report:
    """Measure each scenario, one after the other.

    Args:
        plane: API server.
        folder: Where files may be written.
        sizes: How many claims come together.
        before: An earlier checkout to compare with; None for no comparison.
    """
    report = Report(load=os.getloadavg()[0])
    async with Client(plane.config, user_agent="bench") as client:
        if before is not None:
            await _run_turns(plane, folder, client, report, sizes.compared, before)
        namespace = await make_namespace(client, "bench")
        await _run_ours(plane, folder, Requester(client, namespace, OURS), report, sizes)
        await _run_peer(plane, folder, Requester(client, namespace, PEER), report, sizes)
    return report


async def _run_turns(
    plane: ControlPlane, folder: Path, client: Client, report: Report, count: int, before: Path
) -> None:
    """Measure an earlier checkout and this one in turns, each time with a new process and pool."""
    await serve(client, *RESOURCES)
    kubeconfig = plane.write_kubeconfig(folder / "turns.kubeconfig")
    for turn in range(_ROUNDS):
        for name, checkout in (("before", before), ("now", None)):
            namespace = await make_namespace(client, f"{name}-{turn}")
            requester = Requester(client, namespace, OURS)
            settings = {"WATCH_NAMESPACES": namespace}
            pool = f"{name}{turn}"
            spec = {"family": "IPv4", "addresses": [_PAIR_BLOCK], "realm": pool}
            await client.create(IP_POOL, build_object(IP_POOL, pool, spec=spec))
            log = folder / f"{pool}.log"
            with OperatorProcess("ipam", kubeconfig, settings, log, checkout) as process:
                await requester.request(pool, 20, f"{pool}-warm")
                Console().print(f"{pool}: {count} claims")
                row = await measure(plane, requester, process.pid, name, pool, count)
                report.turns.append(row)


async def _run_ours(
    plane: ControlPlane, folder: Path, requester: Requester, report: Report, sizes: Sizes
) -> None:
    """Measure ipam."""
    client, console = requester.client, Console()
    await serve(client, *RESOURCES)
    await ipam_peer.install(client)
    taken = int(sizes.claims * _TAKEN / (1 - _TAKEN))
    last = ip_address("10.0.0.0") + sizes.claims + taken
    pools = {"empty": "10.32.0.0/17", "full": f"10.0.0.1-{last}", "pair": _PAIR_BLOCK}
    pools["capi"] = _PAIR_BLOCK
    pools |= {f"pool{cidr[-2:]}": cidr for cidr in _GROWTH}
    for name, block in pools.items():
        await client.create(IP_POOL, build_pool(name, block))
    kubeconfig = plane.write_kubeconfig(folder / "ipam.kubeconfig")
    with OperatorProcess("ipam", kubeconfig, _SETTINGS, folder / "ipam.log") as process:
        await requester.request("empty", 20, "warm")
        await requester.request("full", taken, "fill")
        scenarios = [
            ("empty pool", "empty", sizes.claims),
            ("last of a pool", "full", sizes.claims),
            *((cidr[-3:], f"pool{cidr[-2:]}", sizes.growth) for cidr in _GROWTH),
            ("compared with the peer", "pair", sizes.compared),
        ]
        for scenario, pool, count in scenarios:
            console.print(f"{scenario}: {count} claims")
            row = await measure(plane, requester, process.pid, scenario, pool, count)
            report.rows.append(row)
        console.print(f"{_OURS_FOR_CAPI}: {sizes.compared} claims")
        requests = Requester(client, await make_namespace(client, "capi"), REQUESTS)
        await requests.request("capi", 5, "capi-warm")
        report.rows.append(
            await measure(plane, requests, process.pid, _OURS_FOR_CAPI, "capi", sizes.compared)
        )


async def _run_peer(
    plane: ControlPlane, folder: Path, requester: Requester, report: Report, sizes: Sizes
) -> None:
    """Measure the peer."""
    client = requester.client
    await client.create(ipam_peer.POOL, ipam_peer.build_pool("peer", _PAIR_BLOCK))
    kubeconfig = plane.write_kubeconfig(folder / "peer.kubeconfig")
    with ipam_peer.running(kubeconfig, folder / "peer.log") as pid:
        await requester.request("peer", 5, "peer-warm")
        Console().print(f"{ipam_peer.NAME}: {sizes.compared} claims")
        row = await measure(plane, requester, pid, ipam_peer.NAME, "peer", sizes.compared)
        report.rows.append(row)


def render(rows: Sequence[Row]) -> list[str]:
    """Render a table."""
    names = "scenario | claims | all served, s | p50 ms | p99 ms | writes per claim"
    cpus = "CPU ms per claim: operator | kube-apiserver | etcd | client"
    lines = [f"| {names} | {cpus} |", "|---|---|---|---|---|---|---|---|---|---|"]
    for row in rows:
        p50, p99 = (percentile(row.waits, share) * 1000 for share in (0.5, 0.99))
        cpu = " | ".join(
            f"{row.cpu_seconds.get(name, 0.0) * 1000 / row.claims:.1f}" for name in _PROCESSES
        )
        lines.append(
            f"| {row.scenario} | {row.claims} | {row.seconds:.1f} | {p50:.0f} | {p99:.0f} "
            f"| {row.writes_each:.2f} | {cpu} |"
        )
    return lines


def render_page(report: Report) -> list[str]:
    """Render the page of the benchmark."""
    return [
        "# Benchmark of ipam",
        "",
        f"Measured by `./dev bench ipam --claims {report.rows[0].claims} --write`",
        f"on {describe_machine()}.",
        "All claims are created together, with 64 creates in flight. They form a queue, so a claim",
        "in the middle waits for all claims before it. API server, etcd, operator and client share",
        "the cores.",
        "",
        *describe_load(report.load),
        *render(report.rows),
        "",
        "* **empty pool**: claims of a /17 without allocated addresses.",
        "* **last of a pool**: a range of which a tenth is allocated, with as many free addresses",
        "  as claims: the last claim gets the last address.",
        "* **/24, /20, /16**: the cost of a claim does not grow with the pool.",
        f"* **{_OURS_FOR_CAPI}**: the same claims as for the peer. Each creates an",
        "  IPClaim in the queue of the pool and therefore costs more writes.",
        f"* **{ipam_peer.NAME}**: the same number of claims as in the previous row, of an",
        "  empty pool of the same size, on the same API server, with the released provider.",
        "* **writes**: the entry in the ledger, the status of the claim, and the status of the",
        "  pool from time to time. Events are counted; ipam writes none here.",
        "",
        *_render_turns(report.turns),
    ]


def _render_turns(turns: Sequence[Row]) -> list[str]:
    if not turns:
        return []
    return [
        "## Compared with an earlier release",
        "",
        "The operator of an earlier commit (before) and this one (now) served claims of an empty",
        "pool in turns, on the same API server, each time as a new process.",
        "",
        *render(turns),
        "",
    ]


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, print, and write the page when asked to."""
    parser = Parser(prog="./dev bench ipam", description=__doc__)
    parser.add_argument(
        "--claims", type=int, default=5000, help="number of claims that exist at the same time"
    )
    parser.add_argument(
        "--before", type=Path, metavar="CHECKOUT", help="earlier checkout to compare with"
    )
    parser.add_argument(
        "--growth", type=int, default=200, help="number of claims of each growing pool"
    )
    parser.add_argument("--write", action="store_true", help="write the page of benchmarks")
    parser.add_argument(
        "--compared",
        type=int,
        default=2000,
        help="number of claims in the comparison with the IPAM provider of Cluster API",
    )
    options = parser.parse_args(argv)
    sizes = Sizes(options.claims, options.growth, options.compared)
    with tempfile.TemporaryDirectory() as name, ControlPlane() as plane:
        folder = Path(name)
        try:
            report = asyncio.run(run(plane, folder, sizes, options.before))
        finally:
            for log in sorted(folder.glob("*.log")):
                print(log.name, log.read_text()[-2000:])
    print("\n".join(render([*report.turns, *report.rows])))
    for row in [*report.turns, *report.rows]:
        print(row.scenario, dict(row.writes))
    save_report("ipam", asdict(report))
    if options.write:
        write_page("ipam", render_page(report))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

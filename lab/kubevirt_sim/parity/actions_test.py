"""Cases of `subresources.kubevirt.io`: what a client must accept, and what it gets."""

from __future__ import annotations

from lab.kubevirt_sim.parity.site import Site
from libs.common.conditions import find_condition
from libs.common.kinds import Kind, uid_of
from libs.common.reading import text_at
from libs.common.testing.fakeapi.rest import Reply, RestClient
from libs.contracts.kubevirt import RUNNING_MACHINE_ACTIONS

_MACHINE_ACTIONS = Kind(RUNNING_MACHINE_ACTIONS.group, "v1", "VirtualMachine", "virtualmachines")


async def act(site: Site, kind: Kind, action: str, accept: str) -> Reply:
    """Ask for an action, as a client that accepts some types."""
    config = site.config
    authorization = await config.authorization()
    token = (authorization or "").removeprefix("Bearer ")
    async with RestClient(config.server, token=token, tls=config.ssl_context() or True) as rest:
        return await rest.send("PUT", kind.path(*site.web, action), {}, accept=accept)


async def test_client_that_accepts_anything_gets_an_empty_body(site: Site) -> None:
    """A soft reboot of a guest without agent is accepted, and its button pressed."""
    vmi = await site.start_machine()
    accept = "application/json, */*"
    reply = await act(site, RUNNING_MACHINE_ACTIONS, "softreboot", accept)
    assert (reply.status, text_at(reply.body, "text")) == (200, "")
    assert uid_of(await site.instance()) == uid_of(vmi)


async def test_client_that_accepts_only_json_is_refused(site: Site) -> None:
    """Actions have no body, so a client that accepts nothing but JSON gets 406 and no action."""
    vmi = await site.start_machine()
    json_only = "application/json"
    for action in ("softreboot", "pause", "reset"):
        reply = await act(site, RUNNING_MACHINE_ACTIONS, action, json_only)
        assert reply.status == 406, (action, reply)
    reply = await act(site, _MACHINE_ACTIONS, "restart", json_only)
    assert reply.status == 406, reply
    held = await site.instance()
    assert uid_of(held) == uid_of(vmi) and find_condition(held, "Paused") is None


async def test_paused_machine_says_so(site: Site) -> None:
    """A pause shows in conditions and word; a second one is refused with 409."""
    await site.start_machine()
    assert (await act(site, RUNNING_MACHINE_ACTIONS, "pause", "*/*")).status == 200

    async def probe() -> bool:
        return text_at(await site.machine(), "status", "printableStatus") == "Paused"

    await site.until(probe, "the machine is paused")
    assert (await act(site, RUNNING_MACHINE_ACTIONS, "pause", "*/*")).status == 409
    assert (await act(site, RUNNING_MACHINE_ACTIONS, "unpause", "*/*")).status == 200
    await site.until_running()


async def test_restart_makes_another_instance(site: Site) -> None:
    """A restart is accepted with 202; of a machine that is off it is refused with 409."""
    first = await site.start_machine()
    assert (await act(site, _MACHINE_ACTIONS, "restart", "*/*")).status == 202

    async def probe() -> bool:
        vmi = await site.instance()
        return uid_of(vmi) != uid_of(first) and text_at(vmi, "status", "phase") == "Running"

    await site.until(probe, "there is another instance")
    await site.halt()
    reply = await act(site, _MACHINE_ACTIONS, "restart", "*/*")
    assert reply.status == 409, reply

"""Network data, version 2 (the format of netplan), as commands of iproute2; pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

type Command = tuple[str, ...]

DHCP: Final = "udhcpc"
_DEFAULTS: Final = {4: "0.0.0.0/0", 6: "::/0"}


class Unsupported(ValueError):
    """Network data or user data that this guest does not read."""


@dataclass(frozen=True, slots=True)
class Link:
    """A network interface of the guest.

    Attributes:
        name: Name, such as eth0.
        mac: MAC address, in lower case.
    """

    name: str
    mac: str


@dataclass(frozen=True, slots=True)
class Network:
    """What to run and which name servers to write.

    Attributes:
        commands: Commands, in order.
        nameservers: Addresses of name servers; empty leaves them to DHCP.
        search: Search domains.
    """

    commands: tuple[Command, ...]
    nameservers: tuple[str, ...] = ()
    search: tuple[str, ...] = ()


def plan_network(data: object, links: Sequence[Link]) -> Network:
    """Return the commands that configure the interfaces; without data each one uses DHCP.

    Raises:
        Unsupported: The data is of another version, or names an interface that is not there.
    """
    if not data:
        return Network(tuple(_dhcp(link.name) for link in links))
    if not isinstance(data, Mapping):
        raise Unsupported("network data is not a mapping")
    body = data.get("network", data)
    if body.get("version") != 2:
        raise Unsupported(f"network data has version {body.get('version')}; only 2 is supported")
    unknown = set(body) - {"version", "ethernets", "renderer"}
    if unknown:
        raise Unsupported(f"network data has {', '.join(sorted(unknown))}; only ethernets are read")
    commands: list[Command] = []
    nameservers: list[str] = []
    search: list[str] = []
    for key, settings in (body.get("ethernets") or {}).items():
        link = _find_link(key, settings or {}, links)
        commands += _plan_link(link.name, settings or {})
        names = (settings or {}).get("nameservers") or {}
        nameservers += [str(each) for each in names.get("addresses") or []]
        search += [str(each) for each in names.get("search") or []]
    return Network(tuple(commands), tuple(nameservers), tuple(search))


def _find_link(key: str, settings: Mapping[str, Any], links: Sequence[Link]) -> Link:
    match = settings.get("match") or {}
    mac = str(match.get("macaddress", "")).lower()
    name = match.get("name", "" if mac else key)
    for link in links:
        if (mac and link.mac == mac) or (name and link.name == name):
            return link
    raise Unsupported(f"no interface matches {key} ({mac or name})")


def _plan_link(name: str, settings: Mapping[str, Any]) -> list[Command]:
    commands: list[Command] = []
    if mtu := settings.get("mtu"):
        commands.append(("ip", "link", "set", name, "mtu", str(mtu)))
    commands.append(("ip", "link", "set", name, "up"))
    if settings.get("dhcp4"):
        commands.append(_dhcp(name))
    addresses = settings.get("addresses") or []
    commands.extend(("ip", "addr", "replace", str(each), "dev", name) for each in addresses)
    gateways = {family: settings.get(f"gateway{family}") for family in _DEFAULTS}
    commands.extend(
        _route(_DEFAULTS[each], str(via), name) for each, via in gateways.items() if via
    )
    commands.extend(_plan_route(route, name) for route in settings.get("routes") or [])
    return commands


def _plan_route(route: Mapping[str, Any], name: str) -> Command:
    via, target = str(route.get("via", "")), str(route["to"])
    if target == "default":
        target = _DEFAULTS[6 if ":" in via else 4]
    command = _route(target, via, name)
    return (*command, "metric", str(route["metric"])) if "metric" in route else command


def _route(target: str, via: str, name: str) -> Command:
    family = "-6" if ":" in target else "-4"
    hop = ("via", via) if via else ()
    # On-link: a next hop outside the prefix is what routed networks of clouds have.
    return (
        "ip",
        family,
        "route",
        "replace",
        target,
        *hop,
        "dev",
        name,
        *(("onlink",) if via else ()),
    )


def _dhcp(name: str) -> Command:
    return (
        DHCP,
        "-i",
        name,
        "-s",
        "/usr/lib/slipway/udhcpc",
        "-O",
        "staticroutes",
        "-O",
        "mtu",
        "-b",
        "-S",
    )

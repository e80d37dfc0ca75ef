"""Applies NoCloud data to the guest; runs as root inside the guest, once per boot."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import yaml

from lab.guest.nocloud.network import DHCP, Command, Link, Network, Unsupported, plan_network
from lab.guest.nocloud.settings import File, Settings, User, parse_settings

_LABELS: Final = (b"cidata", b"CIDATA")
_ISO_LABEL: Final = 0x8028
"""Where the primary volume descriptor of ISO 9660 has the label, of 32 bytes."""
_FAT_LABELS: Final = (0x2B, 0x47)
"""Where the boot sectors of FAT16 and FAT32 have the label, of 11 bytes."""
_INSTANCE: Final = Path("/state/instance-id")
_LOG: Final = Path("/dev/console")
_FIRST_UID: Final = 1000


def main() -> None:
    """Apply the network data, then everything else; a bad part does not stop the others."""
    data = read_source(Path("/dev"), Path("/run/cidata"))
    _try("network data", _apply_network, data.get("network-config", b""))
    user, meta = data.get("user-data", b""), data.get("meta-data", b"")
    try:
        settings = parse_settings(user, meta)
    except (Unsupported, ValueError, KeyError, TypeError, yaml.YAMLError) as err:
        _say(f"user data ignored: {err}")
        settings = parse_settings(b"", meta)
    _apply_settings(settings)


def read_source(devices: Path, mount_point: Path) -> Mapping[str, bytes]:
    """Return the files of the disk with the label cidata; empty if there is none."""
    for device in sorted([*devices.glob("vd?"), *devices.glob("sd?"), *devices.glob("sr?")]):
        kind = find_filesystem(device)
        if kind is None:
            continue
        mount_point.mkdir(exist_ok=True)
        _run(("mount", "-o", "ro", "-t", kind, str(device), str(mount_point)))
        found = {path.name: path.read_bytes() for path in mount_point.iterdir() if path.is_file()}
        _run(("umount", str(mount_point)))
        return found
    return {}


def find_filesystem(device: Path) -> str | None:
    """Return the file system of a device that is labelled cidata, else None."""
    try:
        with device.open("rb") as file:
            head = file.read(_ISO_LABEL + 32)
    except OSError:
        return None
    if head[_ISO_LABEL : _ISO_LABEL + 32].strip() in _LABELS:
        return "iso9660"
    if any(head[place : place + 11].strip() in _LABELS for place in _FAT_LABELS):
        return "vfat"
    return None


def list_links(root: Path = Path("/sys/class/net")) -> Iterator[Link]:
    """Yield the network interfaces, without the loopback."""
    for path in sorted(root.iterdir()):
        if path.name != "lo" and (path / "address").exists():
            yield Link(path.name, (path / "address").read_text().strip().lower())


def _apply_network(text: bytes) -> None:
    links = list(list_links())
    try:
        network = plan_network(yaml.safe_load(text.decode()) if text.strip() else None, links)
    except (Unsupported, yaml.YAMLError, TypeError, KeyError, AttributeError) as err:
        _say(f"network data ignored, using DHCP: {err}")
        network = plan_network(None, links)
    for link in links:
        _run(("ip", "link", "set", link.name, "up"))
    for command in network.commands:
        _run(command)
    _write_resolver(network)


def _write_resolver(network: Network) -> None:
    lines = [f"nameserver {address}" for address in network.nameservers]
    if network.search:
        lines.insert(0, f"search {' '.join(network.search)}")
    if lines:
        Path("/etc/resolv.conf").write_text("\n".join(lines) + "\n")


def _apply_settings(settings: Settings) -> None:
    _run(("hostname", settings.hostname))
    Path("/etc/hostname").write_text(f"{settings.hostname}\n")
    Path("/etc/hosts").write_text(f"127.0.0.1 localhost {settings.hostname}\n::1 localhost\n")
    known = {line.partition(":")[0] for line in Path("/etc/passwd").read_text().splitlines()}
    new = [user.name for user in settings.users if user.name not in known]
    for user in settings.users:
        _try(f"user {user.name}", _create_user, user, new)
    for name, password in settings.passwords:
        _run(("chpasswd",), f"{name}:{password}\n")
    for file in settings.files:
        _try(f"file {file.path}", _write, file)
    for command in settings.boot:
        _run(command)
    if _INSTANCE.exists() and _INSTANCE.read_text() == settings.instance:
        return
    for command in settings.once:
        _run(command)
    _INSTANCE.write_text(settings.instance)
    os.sync()


def _create_user(user: User, new: Sequence[str]) -> None:
    home, uid = Path("/root"), 0
    if user.name != "root":
        home = Path("/home", user.name)
    if user.name in new:
        uid = _FIRST_UID + new.index(user.name)
        with Path("/etc/passwd").open("a") as passwd:
            passwd.write(f"{user.name}:x:{uid}:{uid}::{home}:{user.shell}\n")
        with Path("/etc/group").open("a") as group:
            group.write(f"{user.name}:x:{uid}:\n")
        with Path("/etc/shadow").open("a") as shadow:
            shadow.write(f"{user.name}:*:20000:0:99999:7:::\n")
    folder = home / ".ssh"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    keys = folder / "authorized_keys"
    keys.write_text("".join(f"{key}\n" for key in user.keys))
    keys.chmod(0o600)
    for path in (home, folder, keys):
        os.chown(path, uid, uid)


def _write(file: File) -> None:
    path = Path(file.path)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab" if file.append else "wb") as target:
        target.write(file.content)
    path.chmod(file.mode)
    if file.owner != "root":
        _run(("chown", file.owner, file.path))


def _run(command: Command, stdin: str = "") -> None:
    """Run a command; a failure is reported on the console and does not stop the boot."""
    # udhcpc goes to the background with the descriptors it got, so none of ours is a pipe.
    try:
        output = subprocess.DEVNULL if command[0] == DHCP else None
        subprocess.run(command, input=stdin, text=True, check=True, stdout=output)
    except (OSError, subprocess.CalledProcessError) as err:
        _say(f"{' '.join(command)[:120]}: {err}")


def _try[**P](what: str, action: Callable[P, None], *args: P.args, **kwargs: P.kwargs) -> None:
    try:
        action(*args, **kwargs)
    except (OSError, ValueError) as err:
        _say(f"{what}: {err}")


def _say(text: str) -> None:
    print(f"nocloud: {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()

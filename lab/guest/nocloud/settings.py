"""User data, as actions on the guest; pure."""

from __future__ import annotations

import base64
import gzip
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import yaml

from lab.guest.nocloud.network import Command, Unsupported

DEFAULT_USER: Final = "debian"
"""The user that `default` names in `users`, and who gets the SSH keys next to root."""
_HEADER: Final = "#cloud-config"
_SHEBANG: Final = "#!"
_FILE_MODE: Final = "0644"


@dataclass(frozen=True, slots=True)
class File:
    """A file to write.

    Attributes:
        path: Absolute path.
        content: Its bytes.
        mode: Permission bits.
        owner: Name of the user that owns it.
        append: Whether the content is added to what the file has.
    """

    path: str
    content: bytes
    mode: int = 0o644
    owner: str = "root"
    append: bool = False


@dataclass(frozen=True, slots=True)
class User:
    """A user to create.

    Attributes:
        name: Name.
        keys: SSH keys that may log in.
        shell: Login shell; the guest has only /usr/bin/sh.
    """

    name: str
    keys: tuple[str, ...] = ()
    shell: str = "/usr/bin/sh"


@dataclass(frozen=True, slots=True)
class Settings:
    """What user data and meta data ask for.

    Attributes:
        instance: Identity of the instance; a new one runs `once` again.
        hostname: Name of the guest.
        users: Users, root and the default user included.
        files: Files, written at each boot: the root of the guest is in memory.
        boot: Commands of each boot.
        once: Commands of the first boot of an instance.
        passwords: Passwords by user.
    """

    instance: str
    hostname: str
    users: tuple[User, ...]
    files: tuple[File, ...] = ()
    boot: tuple[Command, ...] = ()
    once: tuple[Command, ...] = ()
    passwords: tuple[tuple[str, str], ...] = ()


def parse_settings(user_data: bytes, meta_data: bytes) -> Settings:
    """Return what user data and meta data ask for.

    Raises:
        Unsupported: The user data is neither a cloud-config nor a script.
    """
    meta = _load(meta_data)
    instance = str(meta.get("instance-id", "none"))
    hostname = str(meta.get("local-hostname", "guest"))
    keys = _keys(meta.get("public-keys"))
    text = _decompress(user_data).decode().lstrip()
    if not text or text.startswith(_HEADER):
        return _from_config(_load(text.encode()), instance, hostname, keys)
    if text.startswith(_SHEBANG):
        script = File("/run/slipway-user-data", text.encode(), 0o755)
        users = _users({}, keys)
        return Settings(instance, hostname, users, (script,), once=((script.path,),))
    raise Unsupported(f"user data begins with {text[:20]!r}: neither {_HEADER} nor a script")


def _from_config(
    config: Mapping[str, Any], instance: str, hostname: str, keys: Sequence[str]
) -> Settings:
    return Settings(
        instance=instance,
        hostname=str(config.get("hostname") or config.get("fqdn") or hostname).partition(".")[0],
        users=_users(config, keys),
        files=tuple(_files(config.get("write_files") or [])),
        boot=tuple(_commands(config.get("bootcmd") or [])),
        once=tuple(_commands(config.get("runcmd") or [])),
        passwords=tuple(_passwords(config)),
    )


def _users(config: Mapping[str, Any], keys: Sequence[str]) -> tuple[User, ...]:
    common = (*keys, *_keys(config.get("ssh_authorized_keys")))
    users = {name: User(name, common) for name in ("root", DEFAULT_USER)}
    for entry in config.get("users") or []:
        if entry == "default":
            continue
        settings = {"name": entry} if isinstance(entry, str) else entry
        name = str(settings["name"])
        own = _keys(settings.get("ssh_authorized_keys"))
        known = users.get(name, User(name))
        users[name] = User(name, (*known.keys, *own))
    return tuple(users.values())


def _files(entries: Sequence[Mapping[str, Any]]) -> Iterator[File]:
    for entry in entries:
        mode = int(str(entry.get("permissions") or _FILE_MODE).removeprefix("0o"), 8)
        owner = str(entry.get("owner") or "root").partition(":")[0]
        content = _decode(entry.get("content") or "", str(entry.get("encoding") or ""))
        yield File(str(entry["path"]), content, mode, owner, bool(entry.get("append")))


def _decode(content: str | bytes, encoding: str) -> bytes:
    data = content.encode() if isinstance(content, str) else content
    parts = encoding.lower().replace("gzip", "gz").split("+")
    if any(part in ("b64", "base64") for part in parts):
        data = base64.b64decode(data)
    return gzip.decompress(data) if "gz" in parts else data


def _commands(entries: Sequence[object]) -> Iterator[Command]:
    for entry in entries:
        if isinstance(entry, str):
            yield ("/usr/bin/sh", "-c", entry)
        elif isinstance(entry, Sequence):
            yield tuple(str(word) for word in entry)


def _passwords(config: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    if password := config.get("password"):
        yield DEFAULT_USER, str(password)
    listed = (config.get("chpasswd") or {}).get("users") or []
    for entry in listed:
        if entry.get("password"):
            yield str(entry["name"]), str(entry["password"])


def _keys(found: object) -> tuple[str, ...]:
    values = found.values() if isinstance(found, Mapping) else found
    if isinstance(values, str):
        values = values.splitlines()
    return tuple(str(each).strip() for each in values or () if str(each).strip())  # type: ignore[attr-defined]


def _load(text: bytes) -> Mapping[str, Any]:
    found = yaml.safe_load(text.decode()) if text.strip() else {}
    if found is None:
        return {}
    if not isinstance(found, Mapping):
        raise Unsupported("user data or meta data is not a mapping")
    return found


def _decompress(data: bytes) -> bytes:
    return gzip.decompress(data) if data.startswith(b"\x1f\x8b") else data

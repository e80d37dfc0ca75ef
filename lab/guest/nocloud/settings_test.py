"""User data as actions: what each key of a cloud-config means to the guest."""

from __future__ import annotations

import base64
import gzip
import json

import pytest

from lab.guest.nocloud.network import Unsupported
from lab.guest.nocloud.settings import File, parse_settings

META = b'{"instance-id": "web.default", "local-hostname": "web"}'


def test_without_user_data_the_meta_data_names_the_guest() -> None:
    settings = parse_settings(b"", META)

    assert (settings.instance, settings.hostname) == ("web.default", "web")
    assert [user.name for user in settings.users] == ["root", "debian"]


def test_keys_go_to_root_and_the_default_user_and_own_ones_to_their_user() -> None:
    config = {
        "hostname": "shop.example.com",
        "ssh_authorized_keys": ["ssh-ed25519 A"],
        "users": ["default", {"name": "ann", "ssh_authorized_keys": ["ssh-ed25519 B"]}],
    }

    settings = parse_settings(f"#cloud-config\n{json.dumps(config)}".encode(), META)

    assert settings.hostname == "shop"
    assert {user.name: user.keys for user in settings.users} == {
        "root": ("ssh-ed25519 A",),
        "debian": ("ssh-ed25519 A",),
        "ann": ("ssh-ed25519 B",),
    }


def test_files_and_commands() -> None:
    packed = base64.b64encode(gzip.compress(b"hello")).decode()
    text = f"""\
#cloud-config
write_files:
- path: /etc/motd
  content: "words"
  permissions: "0600"
  owner: ann:ann
- path: /etc/packed
  encoding: gzip+base64
  content: {packed}
  append: true
bootcmd:
- echo booted
runcmd:
- [touch, /run/x]
"""

    settings = parse_settings(text.encode(), META)

    assert settings.files == (
        File("/etc/motd", b"words", 0o600, "ann"),
        File("/etc/packed", b"hello", 0o644, "root", append=True),
    )
    assert settings.boot == (("/usr/bin/sh", "-c", "echo booted"),)
    assert settings.once == (("touch", "/run/x"),)


def test_passwords_of_the_default_user_and_of_others() -> None:
    text = b"""\
#cloud-config
password: secret
chpasswd: {users: [{name: root, password: other}]}
"""

    assert parse_settings(text, META).passwords == (("debian", "secret"), ("root", "other"))


def test_script_runs_once_and_compressed_data_is_read() -> None:
    script = b"#!/bin/sh\necho hi\n"

    settings = parse_settings(gzip.compress(script), META)

    (file,) = settings.files
    assert (file.content, file.mode) == (script, 0o755)
    assert settings.once == ((file.path,),)


@pytest.mark.parametrize("text", [b"Content-Type: multipart/mixed", b"#cloud-config\n- a list"])
def test_what_is_not_read_is_refused(text: bytes) -> None:
    with pytest.raises(Unsupported):
        parse_settings(text, META)

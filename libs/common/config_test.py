"""Where the connection comes from, and how its credentials are kept fresh."""

from __future__ import annotations

import json
import ssl
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from aiohttp import web
from aiohttp.test_utils import RawTestServer
from kubernetes.aio.config import kube_config
from structlog.testing import capture_logs

from libs.common import config as module
from libs.common.client import Client
from libs.common.config import ConnectionConfig, load_config
from libs.common.errors import ConfigError, Unreachable
from libs.common.kinds import POD, Key
from libs.common.proxies import find_proxy


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"):
        monkeypatch.delenv(name, raising=False)
    for name in ("HTTPS_PROXY", "HTTP_PROXY", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    monkeypatch.setattr(kube_config, "KUBE_CONFIG_DEFAULT_LOCATION", str(tmp_path / "none"))


def write_kubeconfig(path: Path, user: dict[str, object]) -> Path:
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {"name": "one", "cluster": {"server": "https://one.example.com:6443/"}},
            {
                "name": "two",
                "cluster": {
                    "server": "https://two.example.com",
                    "insecure-skip-tls-verify": True,
                    "tls-server-name": "kubernetes",
                },
            },
        ],
        "users": [{"name": "me", "user": user}],
        "contexts": [
            {"name": "first", "context": {"cluster": "one", "user": "me", "namespace": "team"}},
            {"name": "second", "context": {"cluster": "two", "user": "me"}},
        ],
        "current-context": "first",
    }
    path.write_text(yaml.safe_dump(content))
    return path


async def test_kubeconfig_without_the_official_client_names_the_extra(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "kubernetes.aio.config", None)
    monkeypatch.delitem(sys.modules, "libs.common.kubeconfig", raising=False)
    with pytest.raises(ConfigError, match=r"pip install 'slipway-operators\[kubeconfig\]'"):
        await load_config("kubeconfig")


async def test_kubeconfig_gives_server_namespace_and_token(tmp_path: Path) -> None:
    path = write_kubeconfig(tmp_path / "config", {"token": "secret"})

    config = await load_config(str(path))

    assert (config.server, config.namespace) == ("https://one.example.com:6443", "team")
    assert config.verify
    assert await config.authorization() == "Bearer secret"


async def test_context_is_chosen_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_kubeconfig(tmp_path / "config", {"token": "secret"})
    monkeypatch.setenv("KUBECONFIG", str(path))

    config = await load_config(context="second")

    assert (config.server, config.namespace) == ("https://two.example.com", "default")
    assert not config.verify
    assert config.tls_server_name == "kubernetes"


@pytest.mark.parametrize("content", [None, "", "a: [", "kind: Config"])
async def test_kubeconfig_that_cannot_be_used_is_told_with_what_to_do(
    tmp_path: Path, content: str | None
) -> None:
    path = tmp_path / "config"
    if content is not None:
        path.write_text(content)

    with pytest.raises(ConfigError, match="set --kubeconfig or KUBECONFIG"):
        await load_config(str(path))


async def test_nothing_at_all_is_told_with_what_to_do() -> None:
    with pytest.raises(ConfigError, match="service account"):
        await load_config()


async def test_token_of_a_kubeconfig_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_kubeconfig(tmp_path / "config", {"token": "old"})
    config = await load_config(str(path))
    write_kubeconfig(path, {"token": "new"})

    assert await config.authorization() == "Bearer old", "not with each request"
    monkeypatch.setattr(module, "_RELOAD_SECONDS", -1.0)
    assert await config.authorization() == "Bearer new"


async def test_credentials_are_kept_when_the_kubeconfig_breaks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_kubeconfig(tmp_path / "config", {"token": "old"})
    config = await load_config(str(path))
    monkeypatch.setattr(module, "_RELOAD_SECONDS", -1.0)

    for broken in ("a: [", ""):
        path.write_text(broken)
        assert await config.authorization() == "Bearer old"
    path.unlink()
    assert await config.authorization() == "Bearer old"


@pytest.fixture
def service_account(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "token").write_text("old")
    (tmp_path / "namespace").write_text("team\n")
    (tmp_path / "ca.crt").write_text("certificate")
    monkeypatch.setattr(module, "_SERVICE_ACCOUNT", tmp_path)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    return tmp_path


async def test_service_account_is_found_and_its_token_read_again(
    service_account: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = await load_config()

    assert (config.server, config.namespace) == ("https://10.0.0.1:443", "team")
    assert config.ca_file == str(service_account / "ca.crt")
    assert await config.authorization() == "Bearer old"

    (service_account / "token").write_text("new\n")
    assert await config.authorization() == "Bearer old", "not with each request"
    monkeypatch.setattr(module, "_RELOAD_SECONDS", -1.0)
    assert await config.authorization() == "Bearer new"

    (service_account / "token").unlink()
    assert await config.authorization() == "Bearer new", "kept while the file cannot be read"


async def test_kubeconfig_that_is_named_wins_over_the_service_account(
    service_account: Path,
) -> None:
    path = write_kubeconfig(service_account / "config", {"token": "x"})

    assert (await load_config(str(path))).server == "https://one.example.com:6443"


async def test_service_account_without_a_token_is_reported(service_account: Path) -> None:
    (service_account / "token").unlink()

    with pytest.raises(ConfigError, match="service account"):
        await load_config()


def test_plain_http_has_no_tls() -> None:
    assert ConnectionConfig("http://localhost").ssl_context() is None


def test_tls_that_is_given_is_used_as_it_is() -> None:
    tls = ssl.create_default_context()

    assert ConnectionConfig("https://localhost", tls=tls).ssl_context() is tls


def test_certificate_that_cannot_be_read_is_told() -> None:
    config = ConnectionConfig("https://example.com", ca_file="/does/not/exist")

    with pytest.raises(ConfigError, match=r"example\.com"):
        config.ssl_context()


def write_plugin(path: Path, script: str) -> dict[str, object]:
    """Write a credential plugin; returns the user of a kubeconfig that runs it."""
    path.write_text(f"#!/bin/sh\necho run >> {path}.runs\n{script}\n")
    path.chmod(0o755)
    version = "client.authentication.k8s.io/v1"
    return {"exec": {"apiVersion": version, "command": str(path), "interactiveMode": "Never"}}


def write_token(token: str, expires: str = "") -> str:
    """Write a script that prints a credential."""
    status = {"token": token} | ({"expirationTimestamp": expires} if expires else {})
    version = "client.authentication.k8s.io/v1"
    return (
        f"echo '{json.dumps({'apiVersion': version, 'kind': 'ExecCredential', 'status': status})}'"
    )


def count_runs(path: Path) -> int:
    return len(Path(f"{path}.runs").read_text().splitlines())


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("echo 'Your SSO session has expired' >&2; exit 1", "Your SSO session has expired"),
        ("echo no JSON", "failed to decode"),
        (write_token(""), "returned no credential"),
        (write_token("x").replace("k8s.io/v1", "k8s.io/v1beta1"), "does not match"),
    ],
    ids=["fails", "no-json", "empty", "other-version"],
)
async def test_plugin_that_fails_is_an_error_with_its_output(
    tmp_path: Path, script: str, message: str
) -> None:
    path = write_kubeconfig(tmp_path / "config", write_plugin(tmp_path / "plugin", script))

    with pytest.raises(ConfigError, match=message):
        await load_config(str(path))


async def test_plugin_that_does_not_exist_is_an_error(tmp_path: Path) -> None:
    user = write_plugin(tmp_path / "plugin", "")
    (tmp_path / "plugin").unlink()

    with pytest.raises(ConfigError, match=r"the plugin .* failed: .*No such file"):
        await load_config(str(write_kubeconfig(tmp_path / "config", user)))


async def test_plugin_runs_again_when_its_credential_expires_or_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plugin = tmp_path / "plugin"
    user = write_plugin(plugin, write_token("one", "2999-01-01T00:00:00Z"))
    config = await load_config(str(write_kubeconfig(tmp_path / "config", user)))
    monkeypatch.setattr(module, "_RELOAD_SECONDS", -1.0)

    for _ in range(3):
        assert await config.authorization() == "Bearer one"
    assert count_runs(plugin) == 1, "the credential is valid for years"

    write_plugin(plugin, write_token("two", "2001-01-01T00:00:00Z"))
    config.refuse_credentials()
    assert await config.authorization() == "Bearer two"
    await config.authorization()
    assert count_runs(plugin) == 3, "an expired credential is not kept"


async def test_plugin_that_fails_later_fails_requests_until_it_works_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plugin = tmp_path / "plugin"
    user = write_plugin(plugin, write_token("one"))
    config = await load_config(str(write_kubeconfig(tmp_path / "config", user)))
    monkeypatch.setattr(module, "_RELOAD_SECONDS", -1.0)
    write_plugin(plugin, "echo 'log in again' >&2; exit 1")
    config.refuse_credentials()

    async with Client(config) as client:
        with pytest.raises(Unreachable, match="log in again"):
            await client.get(POD, Key("team", "web"))
    write_plugin(plugin, write_token("two"))
    assert await config.authorization() == "Bearer two"


async def test_token_file_is_trimmed_and_preferred(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("  fresh\n")
    path = write_kubeconfig(tmp_path / "config", {"tokenFile": "token", "token": "stale"})

    assert await (await load_config(str(path))).authorization() == "Bearer fresh"


async def test_token_file_that_is_empty_makes_no_anonymous_requests(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_kubeconfig(tmp_path / "config", {"tokenFile": str(tmp_path / "token")})
    (tmp_path / "token").write_text("\n")
    with pytest.raises(ConfigError, match="its token is empty"):
        await load_config(str(path))

    (tmp_path / "token").write_text("one")
    config = await load_config(str(path))
    monkeypatch.setattr(module, "_RELOAD_SECONDS", -1.0)
    (tmp_path / "token").write_text("")
    assert await config.authorization() == "Bearer one"


async def test_requests_are_made_as_the_user_of_the_kubeconfig(tmp_path: Path) -> None:
    seen: list[list[tuple[str, str]]] = []

    async def answer(request: web.BaseRequest) -> web.Response:
        seen.append([item for item in request.headers.items() if item[0].startswith("Imperson")])
        return web.json_response({"kind": "Pod", "metadata": {"name": "web"}})

    user: dict[str, object] = {"token": "t", "as": "dev", "as-uid": "u1", "as-groups": ["a", "b"]}
    user["as-user-extra"] = {"Scopes": ["x", "y"]}
    config = await load_config(str(write_kubeconfig(tmp_path / "config", user)))
    async with RawTestServer(answer) as server:
        url = str(server.make_url("")).rstrip("/")
        async with Client(replace(config, server=url)) as client:
            await client.get(POD, Key("team", "web"))

    assert sorted(seen[0]) == [
        ("Impersonate-Extra-scopes", "x"),
        ("Impersonate-Extra-scopes", "y"),
        ("Impersonate-Group", "a"),
        ("Impersonate-Group", "b"),
        ("Impersonate-Uid", "u1"),
        ("Impersonate-User", "dev"),
    ]


async def test_groups_without_a_user_are_refused(tmp_path: Path) -> None:
    path = write_kubeconfig(tmp_path / "config", {"token": "t", "as-groups": ["admins"]})

    with pytest.raises(ConfigError, match="need the field as"):
        await load_config(str(path))


async def test_fields_without_effect_are_named(tmp_path: Path) -> None:
    path = write_kubeconfig(tmp_path / "config", {"token": "t", "impersonate": "dev"})

    with capture_logs() as logs:
        await load_config(str(path))

    assert [(one["part"], one["field"]) for one in logs] == [("user", "impersonate")]


@pytest.mark.parametrize(
    ("variables", "proxy"),
    [
        ({"HTTPS_PROXY": "http://p:3128"}, "http://p:3128"),
        ({"https_proxy": "p:3128"}, "http://p:3128"),
        ({"HTTP_PROXY": "http://p:3128"}, ""),
        ({"HTTPS_PROXY": "http://p:3128", "NO_PROXY": "example.org, .example.com"}, ""),
        ({"HTTPS_PROXY": "http://p:3128", "NO_PROXY": "one.example.com:443"}, "http://p:3128"),
        ({"HTTPS_PROXY": "http://p:3128", "NO_PROXY": "*"}, ""),
    ],
)
async def test_proxy_of_the_environment_is_used_unless_it_is_excluded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], proxy: str
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    path = write_kubeconfig(tmp_path / "config", {"token": "t"})

    assert (await load_config(str(path))).proxy == proxy


async def test_pod_uses_the_proxy_of_its_environment(
    service_account: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://p:3128")
    assert (await load_config()).proxy == "http://p:3128"

    monkeypatch.setenv("NO_PROXY", "localhost,10.0.0.0/8")
    assert (await load_config()).proxy == ""


async def test_proxy_that_is_not_supported_is_refused_without_its_password(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "socks5://user:secret@p:1080")
    path = write_kubeconfig(tmp_path / "config", {"token": "t"})

    with pytest.raises(ConfigError, match="HTTPS_PROXY names a proxy with scheme socks5") as caught:
        await load_config(str(path))
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "excluded", "is_excluded"),
    [
        ("https://10.96.0.1:443", "10.96.0.0/12", True),
        ("https://[fd00::1]:443", "fd00::/8", True),
        ("https://[fd00::1]:443", "fd00::1", True),
        ("https://[fd00::1]:443", "[fd00::1]", True),
        ("https://[fd00::1]:443", "[fd00::1]:443", True),
        ("https://[fd00::1]:443", "[fd00::1]:6443", False),
        ("https://10.96.0.1:443", "10.96.0.1:6443", False),
        ("https://api.example.com.", "example.com", True),
        ("https://api.example.com", "example.com.", True),
        ("https://api.example.com", "api.example.com.:443", True),
        ("https://api.example.com", ".", False),
        ("https://api.example.com", "example.com", True),
        ("https://example.com", ".example.com", False),
        ("https://notexample.com", "example.com", False),
        ("https://api.example.com", "*.example.com", True),
        ("https://127.0.0.1:6443", "", True),
        ("https://localhost:6443", "", True),
    ],
)
def test_exclusions_have_the_meaning_of_kubectl(
    url: str, excluded: str, *, is_excluded: bool
) -> None:
    variables = {"HTTPS_PROXY": "http://p:3128", "NO_PROXY": excluded}

    assert (find_proxy(url, variables) == "") is is_excluded

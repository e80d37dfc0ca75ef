"""Where the connection comes from, and how its credentials are kept fresh."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest
import yaml
from kubernetes.aio.config import kube_config

from libs.common import config as module
from libs.common.config import ConnectionConfig, load_config
from libs.common.errors import ConfigError


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"):
        monkeypatch.delenv(name, raising=False)
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

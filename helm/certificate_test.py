"""Certificates of webhooks that cert-manager or others issue, in the chart that has webhooks."""

from __future__ import annotations

from typing import Any, Final

import pytest
import yaml

from libs.common.client import Client
from libs.common.kinds import Kind, Manifest
from libs.common.testing.helm import HelmError, render_chart, with_registry
from libs.common.testing.serving import serve
from tests.charts.base import NAMESPACE
from tools.cluster.errors import ToolError
from tools.cluster.go_toolchain import ensure_go
from tools.cluster.progress import open_progress
from tools.cluster.versions import CERT_MANAGER_MODULE

_NAME: Final = "jmxexporter-webhook"
_ISSUER: Final = {"name": "company", "kind": "VaultIssuer", "group": "issuers.example.com"}
_KINDS: Final = {
    kind: Kind("cert-manager.io", "v1", kind, f"{kind.lower()}s")
    for kind in ("Certificate", "Issuer")
}


def render(
    *kinds: str, webhooks: bool = True, certificate_secret: str = "", **cert_manager: Any
) -> list[Manifest]:
    """Render the chart with cert-manager, unless a Secret is named."""
    certificates: Manifest = {"certificateSecret": certificate_secret}
    if not certificate_secret or cert_manager:
        certificates["certManager"] = {"enabled": True, **cert_manager}
    values = {
        "settings": {"webhooks": webhooks},
        "webhooks": certificates,
        "prometheusRule": {"enabled": True},
    }
    return render_chart(
        "jmxexporter", with_registry(values), namespace=NAMESPACE, show_only=list(kinds)
    )


def read_environment(**values: Any) -> str:
    """Return the Secret that the operator reads."""
    (deployment,) = render("Deployment", **values)
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    found = {each["name"]: each.get("value") for each in container["env"]}
    return str(found["JMXEXPORTER_WEBHOOK_CERTIFICATE_SECRET"])


def list_rules(**values: Any) -> list[Manifest]:
    """Return the rules of the Role for the certificate."""
    (role,) = (each for each in render("Role", **values) if each["metadata"]["name"] == _NAME)
    rules: list[Manifest] = role["rules"]
    return rules


def read_alert(**values: Any) -> Manifest:
    """Return the alert about a certificate that was not renewed."""
    (rule,) = render("PrometheusRule", **values)
    alerts = (each for group in rule["spec"]["groups"] for each in group["rules"])
    (alert,) = (each for each in alerts if each["alert"] == "OperatorWebhookCertificateExpiring")
    found: Manifest = alert
    return found


def test_cert_manager_issues_the_certificate_with_an_issuer_of_the_chart() -> None:
    certificate, issuer = sorted(render("Certificate", "Issuer"), key=lambda each: each["kind"])

    assert issuer["spec"] == {"selfSigned": {}}
    service = f"{_NAME}.{NAMESPACE}"
    assert certificate["spec"] == {
        "secretName": f"{_NAME}-tls",
        "commonName": _NAME,
        "dnsNames": [f"{service}.svc", service, f"{service}.svc.cluster.local"],
        "usages": ["digital signature", "key encipherment", "server auth"],
        "duration": "2160h",
        "renewBefore": "720h",
        "privateKey": {"algorithm": "ECDSA", "rotationPolicy": "Always"},
        "issuerRef": {
            "name": issuer["metadata"]["name"],
            "kind": "Issuer",
            "group": "cert-manager.io",
        },
    }
    assert {each["metadata"]["namespace"] for each in (certificate, issuer)} == {NAMESPACE}


def test_issuer_of_the_user_signs_the_certificate() -> None:
    (certificate,) = render(
        "Certificate",
        "Issuer",
        issuerRef=_ISSUER,
        duration="48h",
        renewBefore="16h",
        privateKeyAlgorithm="RSA",
    )

    spec = certificate["spec"]
    assert spec["issuerRef"] == _ISSUER
    assert (spec["duration"], spec["renewBefore"]) == ("48h", "16h")
    assert spec["privateKey"]["algorithm"] == "RSA"
    # Many issuers sign only common names that are DNS names as well.
    assert "commonName" not in spec


def test_operator_can_read_the_secret_of_cert_manager_and_no_other() -> None:
    name = f"{_NAME}-tls"

    assert read_environment() == name
    assert list_rules() == [
        {"apiGroups": [""], "resources": ["secrets"], "resourceNames": [name], "verbs": ["get"]}
    ]
    assert _NAME not in {each["metadata"]["name"] for each in render("Secret")}


def test_secret_of_the_user_needs_no_cert_manager() -> None:
    name = "webhook-cert"

    assert render("Certificate", "Issuer", certificate_secret=name) == []
    assert read_environment(certificate_secret=name) == name
    (rule,) = list_rules(certificate_secret=name)
    assert (rule["resourceNames"], rule["verbs"]) == ([name], ["get"])
    secrets = render("Secret", certificate_secret=name)
    assert _NAME not in {each["metadata"]["name"] for each in secrets}


def test_webhook_configuration_asks_no_injector() -> None:
    (configuration,) = render("MutatingWebhookConfiguration")

    assert "annotations" not in configuration["metadata"], "the operator writes the CA bundle"


@pytest.mark.parametrize(("renew_before", "hours"), [("720h", 168), ("48h", 24), ("1h", 1)])
def test_alert_fires_only_after_the_renewal_is_due(renew_before: str, hours: int) -> None:
    alert = read_alert(renewBefore=renew_before)

    assert alert["expr"].endswith(f"< {hours * 3600}")
    assert f"Secret {_NAME}-tls" in alert["annotations"]["description"]
    assert "kubectl describe certificates" in alert["annotations"]["runbook"]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"webhooks": False}, r"certManager\.enabled has no effect.*set settings\.webhooks to"),
        (
            {"webhooks": False, "certificate_secret": "a"},
            r"webhooks\.certificateSecret has no effect",
        ),
        ({"certificate_secret": "a", "duration": "2h"}, "exclude each other"),
        ({"certificate_secret": _NAME}, r"must not be jmxexporter-webhook: an upgrade deletes"),
        ({"renewBefore": "2160h"}, r"renewBefore \(2160h\) must be less than"),
        ({"issuerRef": {"kind": "ClusterIssuer"}}, r"issuerRef\.name is empty"),
        ({"duration": "90d"}, "duration"),
        ({"issuerRef": {"nam": "a"}}, "nam"),
    ],
)
def test_values_without_effect_are_refused(values: dict[str, Any], message: str) -> None:
    with pytest.raises(HelmError, match=message):
        render(**values)


@pytest.mark.apiserver
@pytest.mark.parametrize("issuer", [{}, {"issuerRef": _ISSUER}], ids=["own", "other"])
async def test_server_with_the_kinds_of_cert_manager_accepts_the_objects(
    kube_client: Client, issuer: Manifest
) -> None:
    try:
        folder = ensure_go(open_progress("cert-manager")).module_directory(CERT_MANAGER_MODULE)
    except ToolError as err:
        pytest.skip(f"the CRDs of cert-manager are not available: {err}")
    for name in ("certificates", "issuers"):
        path = folder / "deploy" / "crds" / f"cert-manager.io_{name}.yaml"
        await serve(kube_client, yaml.safe_load(path.read_text(encoding="utf-8")))

    for one in render("Certificate", "Issuer", **issuer):
        one["metadata"]["namespace"] = "default"
        url = _KINDS[one["kind"]].path("default")
        await kube_client.raw("POST", f"{url}?dryRun=All&fieldValidation=Strict", one)

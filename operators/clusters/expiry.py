"""The condition CertificatesExpiring. Pure."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

from libs.common.conditions import Condition
from operators.clusters.api.reasons import ConditionType, Reason
from operators.clusters.certificates import AUTHORITY_FILES, expiry_of
from operators.clusters.observed import Observed

WARNING_TIME: Final = timedelta(days=90)
"""A certificate with less time left is reported."""


def evaluate_certificates(observed: Observed, now: datetime) -> Condition:
    """Build the condition CertificatesExpiring."""
    type_ = ConditionType.CERTIFICATES_EXPIRING
    for name, expires in _list_authorities(observed):
        if expires - now < WARNING_TIME:
            message = (
                f"certificate authority {name} expires on {expires:%Y-%m-%d}; the operator does "
                "not replace authorities: move to a new cluster before that date"
            )
            return Condition.true(type_, Reason.EXPIRING, message)
    served = observed.workload.certificate_expires
    if served is None:
        message = "the API of the cluster has not shown its certificate yet"
        return Condition.unknown(type_, Reason.NOT_CHECKED, message)
    if served - now < WARNING_TIME:
        message = (
            f"a certificate that the API serves expires on {served:%Y-%m-%d}; check "
            "slipway-renew.timer on the nodes of the control plane, or run `kubeadm certs renew "
            "all` there and restart the static pods"
        )
        return Condition.true(type_, Reason.EXPIRING, message)
    return Condition.false(type_, Reason.VALID, "no certificate expires within 90 days")


def _list_authorities(observed: Observed) -> list[tuple[str, datetime]]:
    if observed.authorities is None:
        return []
    files = observed.authorities.files
    return [(name, expiry_of(files[f"{name}.crt"])) for name in AUTHORITY_FILES]

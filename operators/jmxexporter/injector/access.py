"""Access to the metrics of an endpoint, and the key with which its guard verifies the operator.

All of it comes by the environment of the injector, which the kubelet fills in from Secrets of the
pod's namespace. The operator itself reads none of them.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field

from operators.jmxexporter.injector.messages import (
    CLIENTS_VARIABLE,
    KEY_VARIABLE,
    LOGIN_VARIABLES,
    TLS_VARIABLES,
    Request,
)


@dataclass(frozen=True, slots=True)
class Access:
    """The access control of an endpoint, from the environment.

    Attributes:
        values: Values by variable; never shown.
    """

    values: Mapping[str, str] = field(default_factory=dict, repr=False)

    def find_missing(self, request: Request) -> str:
        """Return what a Secret lacks that the request names; empty for nothing."""
        wanted: list[tuple[str, str, str]] = []
        if request.tls_secret:
            wanted += [(request.tls_secret, *pair) for pair in TLS_VARIABLES.items()]
        if request.client_certificates:
            wanted.append((request.tls_secret, "ca.crt", CLIENTS_VARIABLE))
        if request.login_secret:
            wanted += [(request.login_secret, *pair) for pair in LOGIN_VARIABLES.items()]
        missing = [
            f"Secret {name} has no key {key}"
            for name, key, variable in wanted
            if not self.values.get(variable)
        ]
        return "; ".join(missing)

    def render(self, request: Request) -> dict[str, str]:
        """Return the settings of the guard, as properties.

        The password is hashed: anyone who reads the memory of the JVM does not learn it.
        """
        reported = {
            "publicKey": self.values.get(KEY_VARIABLE, ""),
            "audience": request.container_id,
        }
        if request.tls_secret:
            reported["tlsCertificate"] = self.values[TLS_VARIABLES["tls.crt"]]
            reported["tlsKey"] = self.values[TLS_VARIABLES["tls.key"]]
        if request.client_certificates:
            reported["tlsClients"] = self.values[CLIENTS_VARIABLE]
        if request.login_secret:
            user, password = (self.values[name] for name in LOGIN_VARIABLES.values())
            salt = secrets.token_hex(16)
            reported["authSalt"] = salt
            reported["authHash"] = hashlib.sha256(f"{salt}{user}:{password}".encode()).hexdigest()
        return reported

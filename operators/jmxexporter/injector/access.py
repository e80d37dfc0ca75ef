"""Access control of an endpoint, and the key with which its guard verifies the operator.

All values come from the environment of the injector. The operator sets the key. The kubelet fills
in certificates and login from Secrets in the namespace of the pod; the operator does not read them.
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
        values: Values by variable; not part of the repr.
    """

    values: Mapping[str, str] = field(default_factory=dict, repr=False)

    def find_missing(self, request: Request) -> str:
        """Return the keys that are missing in the Secrets of a request; empty for none."""
        missing = [
            f"Secret {name} has no key {key}"
            for name, key, variable in request.secrets
            if not self.values.get(variable)
        ]
        return "; ".join(missing)

    def render(self, request: Request) -> dict[str, str]:
        """Return the settings of the guard, as properties.

        The password is hashed, so that the memory of the JVM does not reveal it.
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

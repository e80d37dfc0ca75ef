"""Names of the objects of a PulsarConsumer, and derived names of Pulsar topics.

All objects of a PulsarConsumer have its name, because there is at most one of each kind.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Self
from urllib.parse import quote, urlsplit

from libs.common.labels import INSTANCE, MANAGED_BY
from libs.common.naming import label_value
from operators.pulsarconsumer.api.consuming import RetryStrategy
from operators.pulsarconsumer.api.v1 import GROUP, PulsarConsumer
from operators.pulsarconsumer.app.core.topics import ATTEMPTS_SUFFIX

OPERATOR_ID: Final = "pulsarconsumer"
"""Id of the operator: package, chart, release, field manager, value of the managed-by label."""
FINALIZER: Final = f"{GROUP}/finalizer"
"""Finalizer on a PulsarConsumer whose subscription is deleted together with it."""
CONTAINER: Final = "consumer"
"""Name of the container that consumes."""
_ADMIN_PORTS: Final[Mapping[str, int]] = {"pulsar": 8080, "pulsar+ssl": 8443}
_DEFAULT_NAMESPACE: Final = "public/default"


@dataclass(frozen=True, slots=True)
class Topic:
    """The name of a Pulsar topic.

    Attributes:
        domain: `persistent` or `non-persistent`.
        namespace: Tenant and namespace, such as `public/default`.
        name: The name within them.
    """

    domain: str
    namespace: str
    name: str

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse a topic: `name`, `tenant/namespace/name`, or the full name with the domain."""
        domain, found, rest = text.partition("://")
        if not found:
            domain, rest = "persistent", text
            if "/" not in text:
                return cls(domain, _DEFAULT_NAMESPACE, text)
        tenant, namespace, name = rest.split("/", 2)
        return cls(domain, f"{tenant}/{namespace}", name)

    def __str__(self) -> str:
        """Return the full name: `persistent://public/default/orders`."""
        return f"{self.domain}://{self.namespace}/{self.name}"

    @property
    def path(self) -> str:
        """Path of the topic in the admin API, below `/admin/v2`."""
        namespace = "/".join(quote(part, safe="") for part in self.namespace.split("/"))
        return f"/{self.domain}/{namespace}/{quote(self.name, safe='')}"

    def with_suffix(self, subscription: str, suffix: str) -> Topic:
        """Return the persistent topic of a subscription, named as by Pulsar's clients."""
        return Topic("persistent", self.namespace, f"{self.name}-{subscription}-{suffix}")


def retry_topic(consumer: PulsarConsumer) -> str:
    """Return the retry topic; empty if there is none or its name is unknown."""
    retry = consumer.spec.retry
    if retry is None or retry.strategy is not RetryStrategy.RETRY_TOPIC:
        return ""
    return retry.topic or _name_after_first(consumer, "RETRY")


def dead_letter_topic(consumer: PulsarConsumer) -> str:
    """Return the dead-letter topic; empty if there is none or its name is unknown."""
    dead = consumer.spec.dead_letter
    return "" if dead is None else dead.topic or _name_after_first(consumer, "DLQ")


def dead_letter_subscription(consumer: PulsarConsumer) -> str:
    """Return the subscription that keeps the dead letters; empty if there are none."""
    dead = consumer.spec.dead_letter
    return "" if dead is None else dead.subscription_name or consumer.spec.subscription_name


def attempts_topic(consumer: PulsarConsumer) -> str:
    """Return the topic in which consumers share attempts; empty if they do not."""
    spec = consumer.spec
    if spec.dead_letter is None or not consumer.topics:
        return ""
    if spec.retry is not None and spec.retry.strategy is RetryStrategy.RETRY_TOPIC:
        return ""
    if Topic.parse(consumer.topics[0]).domain != "persistent":
        return ""
    name = _name_after_first(consumer, ATTEMPTS_SUFFIX)
    output = consumer.spec.output
    named = [*consumer.topics, dead_letter_topic(consumer), *([output.topic] if output else [])]
    is_used = name in {str(Topic.parse(each)) for each in named}
    return "" if is_used else name


def _name_after_first(consumer: PulsarConsumer, suffix: str) -> str:
    if not consumer.topics:
        return ""
    return str(Topic.parse(consumer.topics[0]).with_suffix(consumer.spec.subscription_name, suffix))


def selector_labels(consumer: str) -> dict[str, str]:
    """Return the labels that select the pods of a PulsarConsumer; they never change."""
    return {MANAGED_BY: OPERATOR_ID, INSTANCE: label_value(consumer)}


def qualify_address(address: str, namespace: str) -> str:
    """Qualify a host name without dots in a URL as a Service in a namespace.

    Such a name means a Service in the namespace of the PulsarConsumer, but the operator and KEDA
    run in other namespaces.
    """
    split = urlsplit(address)
    host = _qualify(split.hostname or "", namespace)
    port = f":{split.port}" if split.port else ""
    return split._replace(netloc=f"{host}{port}").geturl()


def _qualify(host: str, namespace: str) -> str:
    if ":" in host:
        return f"[{host}]"
    return host if "." in host or host == "localhost" else f"{host}.{namespace}.svc"


def default_admin_address(server: str, namespace: str) -> str:
    """Derive the address of the admin API from the address to which consumers connect.

    Args:
        server: `spec.serverAddress`.
        namespace: Namespace of the PulsarConsumer. A host name without dots is a Service in it, as
            for the pods in that namespace.
    """
    scheme, _, rest = server.partition("://")
    first = rest.split(",", 1)[0].rstrip("/")
    split = urlsplit(f"//{first}")
    host = _qualify(split.hostname or "", namespace)
    if scheme in ("http", "https"):
        return f"{scheme}://{host}:{split.port}" if split.port else f"{scheme}://{host}"
    return f"{'https' if scheme.endswith('+ssl') else 'http'}://{host}:{_ADMIN_PORTS[scheme]}"

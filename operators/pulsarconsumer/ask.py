"""Queries of the broker of a PulsarConsumer: reads credentials from Secrets, explains errors."""

from __future__ import annotations

import base64
import binascii
import contextlib
import hashlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from libs.common.client import Client
from libs.common.errors import NotFound, ServerError, SlipwayError, TooManyRequests, Unreachable
from libs.common.kinds import SECRET, Key
from operators.pulsarconsumer.api.connection import Authentication, KeyReference, Switch
from operators.pulsarconsumer.api.consuming import InitialPosition, SubscriptionCreator
from operators.pulsarconsumer.api.reasons import Reason
from operators.pulsarconsumer.api.scaling import BacklogPrecision, ScalingEngine
from operators.pulsarconsumer.api.v1 import PulsarConsumer
from operators.pulsarconsumer.broker import errors
from operators.pulsarconsumer.broker.connections import Connections
from operators.pulsarconsumer.broker.login import KeyFile, Login, LoginInvalid
from operators.pulsarconsumer.broker.poll import StatusQuery
from operators.pulsarconsumer.broker.pulsar_admin import PulsarAdmin
from operators.pulsarconsumer.naming import (
    Topic,
    attempts_topic,
    dead_letter_subscription,
    dead_letter_topic,
    retry_topic,
)
from operators.pulsarconsumer.report import BrokerProblem, SubscriptionRef
from operators.pulsarconsumer.settings import Settings

_REASONS: Final[Mapping[type[Exception], tuple[Reason, str]]] = {
    errors.AdminUnreachable: (
        Reason.UNREACHABLE,
        "the admin API does not respond; is spec.adminAddress right, and is the broker reachable?",
    ),
    errors.AdminUnauthorized: (
        Reason.AUTHENTICATION_FAILED,
        "the broker does not accept the credentials for the admin API, see spec.authentication",
    ),
    errors.AdminForbidden: (
        Reason.AUTHORIZATION_FAILED,
        "the role of the credentials for the admin API must be allowed to consume the topic",
    ),
    errors.AdminNotFound: (
        Reason.BROKER_ERROR,
        "the topic or the subscription does not exist",
    ),
    errors.AdminConflict: (
        Reason.BROKER_ERROR,
        "the broker reports that the subscription is in use by other consumers",
    ),
    errors.AdminFailed: (Reason.BROKER_ERROR, "the admin API returned an error; see its log"),
    errors.AdminMisunderstood: (
        Reason.BROKER_ERROR,
        "the response does not come from a Pulsar broker; is spec.adminAddress right?",
    ),
    TimeoutError: (Reason.UNREACHABLE, "the admin API does not respond in time"),
}


_OURS: Final = (ServerError, TooManyRequests, Unreachable)
"""Temporary errors of the API server, which say nothing about the requested object."""
_PASSING: Final = (errors.AdminBusy, errors.AdminConflict)
"""Temporary errors: the request may succeed later."""


class SecretMissing(Exception):
    """A Secret in the spec cannot be read; the message names it."""


@dataclass(slots=True)
class Secrets:
    """The Secrets of one namespace; each is read once.

    Attributes:
        client: Connection to the API server.
    """

    client: Client
    namespace: str
    _held: dict[str, Mapping[str, Any]] = field(default_factory=dict)

    async def read(self, name: str, key: str, where: str) -> str:
        """Return the text under a key.

        Raises:
            SecretMissing: The Secret or the key does not exist.
            SlipwayError: The API server cannot be queried now.
        """
        if name not in self._held:
            try:
                secret = await self.client.get(SECRET, Key(self.namespace, name))
            except NotFound:
                raise SecretMissing(f"{where}: there is no Secret {name}") from None
            except _OURS:
                raise
            except SlipwayError as err:
                message = f"{where}: Secret {name} cannot be read ({type(err).__name__})"
                raise SecretMissing(message) from None
            self._held[name] = secret.get("data") or {}
        try:
            return base64.b64decode(self._held[name][key], validate=True).decode().strip()
        except KeyError:
            raise SecretMissing(f"{where}: Secret {name} has no key {key}") from None
        except (binascii.Error, UnicodeDecodeError, TypeError):
            raise SecretMissing(f"{where}: key {key} of Secret {name} is not text") from None

    async def refer(self, reference: KeyReference, where: str) -> str:
        """Return the text that a reference names; raises the same errors as `read`."""
        return await self.read(reference.name, reference.key, where)


async def read_login(consumer: PulsarConsumer, client: Client) -> Login:
    """Read the credentials for the admin API.

    Raises:
        SecretMissing: A Secret or a key in it does not exist.
        LoginInvalid: The content of the Secret is malformed.
    """
    secrets = Secrets(client, consumer.metadata.namespace)
    found: dict[str, Any] = {}
    if consumer.admin_login is not None:
        separate = consumer.spec.admin_authentication is not None
        where = "spec.adminAuthentication" if separate else "spec.authentication"
        found |= await _read_authentication(consumer.admin_login, secrets, where)
    tls = consumer.spec.tls
    if tls is not None:
        found["verify_hostname"] = tls.hostname_verification is Switch.ENABLED
        found["verify_certificate"] = tls.certificate_verification is Switch.ENABLED
        if tls.trusted_ca_secret_ref is not None:
            where = "spec.tls.trustedCASecretRef"
            found["trusted"] = await secrets.refer(tls.trusted_ca_secret_ref, where)
    return Login(**found)


async def _read_authentication(
    login: Authentication, secrets: Secrets, where: str
) -> dict[str, Any]:
    if login.token is not None:
        return {"token": await secrets.refer(login.token.secret_key_ref, f"{where}.token")}
    if login.basic is not None:
        name, where = login.basic.secret_name, f"{where}.basic"
        return {
            "username": await secrets.read(name, "username", where),
            "password": await secrets.read(name, "password", where),
        }
    if login.tls is not None:
        name, where = login.tls.secret_name, f"{where}.tls"
        return {
            "certificate": await secrets.read(name, "tls.crt", where),
            "key": await secrets.read(name, "tls.key", where),
        }
    if login.service_account_token is not None:
        raise SecretMissing("spec.adminAuthentication: is required with a ServiceAccountToken")
    if login.oauth2 is not None:
        oauth = login.oauth2
        raw = await secrets.refer(oauth.credentials_secret_ref, f"{where}.oauth2")
        key_file = KeyFile.parse(
            raw.encode(), issuer=oauth.issuer_url, audience=oauth.audience, scope=oauth.scope
        )
        return {"key_file": key_file}
    return {}


async def open_admin(
    consumer: PulsarConsumer,
    client: Client,
    settings: Settings,
    connections: Connections,
    address: str,
    on_busy: Callable[[errors.AdminBusy], None],
) -> PulsarAdmin:
    """Build the client of the admin API with the current credentials.

    Raises:
        SecretMissing: A Secret or a key in it does not exist.
        LoginInvalid: The content of the Secret is malformed.
    """
    return PulsarAdmin(
        address,
        await read_login(consumer, client),
        timeout=settings.broker_timeout_seconds,
        allow_loopback=settings.allow_loopback_brokers,
        connections=connections,
        on_busy=on_busy,
    )


def build_status_query(consumer: PulsarConsumer) -> StatusQuery:
    """Build the query for the state of a PulsarConsumer at the broker."""
    spec = consumer.spec
    scaling = spec.autoscaling
    native = scaling is not None and scaling.engine is ScalingEngine.NATIVE
    precise = scaling is not None and scaling.backlog_precision is BacklogPrecision.PRECISE
    return StatusQuery(
        topics=consumer.topics,
        subscription=spec.subscription_name,
        # With zero consumers, a backlog can build up only if the subscription already exists.
        create=spec.subscription.create is SubscriptionCreator.OPERATOR or native,
        earliest=spec.subscription.initial_position is InitialPosition.EARLIEST,
        replicated=spec.subscription.replicate_state is Switch.ENABLED,
        precise=precise,
        aged=scaling is not None and scaling.targets.max_backlog_age_seconds is not None,
        retries=retry_topic(consumer),
        attempts=attempts_topic(consumer),
        dead_letters=dead_letter_topic(consumer),
        dead_letter_subscription=dead_letter_subscription(consumer),
    )


def build_fingerprint(consumer: PulsarConsumer, address: str, status_query: StatusQuery) -> str:
    """Return a hash that changes with the address, the credentials and the query."""
    spec = consumer.spec
    parts = (
        consumer.metadata.uid,
        address,
        repr(status_query),
        repr(consumer.admin_login),
        repr(spec.tls),
    )
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


async def seek(admin: PulsarAdmin, consumer: PulsarConsumer, milliseconds: int) -> None:
    """Move the subscription on every topic."""
    for name in consumer.topics:
        await admin.reset_cursor(Topic.parse(name), consumer.spec.subscription_name, milliseconds)


async def delete_subscriptions(
    admin: PulsarAdmin, subscriptions: Iterable[SubscriptionRef]
) -> None:
    """Delete subscriptions; one that is missing counts as deleted."""
    for subscription in subscriptions:
        with contextlib.suppress(errors.AdminNotFound):
            await admin.delete_subscription(Topic.parse(subscription.topic), subscription.name)


def evaluate(err: Exception) -> BrokerProblem:
    """Return reason and message of an error, without text from the broker.

    The text of a broker could contain secrets, or anything that its owner wants users to see.
    """
    if isinstance(err, _OURS):
        message = "the API server did not return a Secret with credentials for the admin API"
        return BrokerProblem(Reason.SECRET_MISSING, message, passing=True, ours=True)
    if isinstance(err, SecretMissing):
        return BrokerProblem(Reason.SECRET_MISSING, str(err))
    if isinstance(err, LoginInvalid):
        return BrokerProblem(
            Reason.SECRET_MISSING, f"the Secret with credentials for the admin API {err}"
        )
    if isinstance(err, errors.AdminAddressRefused):
        return BrokerProblem(Reason.REFUSED_ADDRESS, f"spec.adminAddress: {err}")
    if isinstance(err, errors.AdminRedirected):
        message = f"{err}; set spec.adminAddress to a proxy or to that domain"
        return BrokerProblem(Reason.REDIRECT_REFUSED, message)
    for kind, (reason, message) in _REASONS.items():
        if isinstance(err, kind):
            return BrokerProblem(reason, message, passing=isinstance(err, _PASSING))
    return BrokerProblem(
        Reason.BROKER_ERROR, f"the broker could not be queried ({type(err).__name__})"
    )

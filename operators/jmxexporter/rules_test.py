"""Rules reach running JVMs without a further injector: the operator against a played guard.

The guard itself is tried on real JVMs in `injector/control_jvm_test.py`.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey

from libs.common.conditions import find_condition
from libs.common.kinds import CONFIG_MAP, POD, SECRET, Key, build_object
from libs.common.testing.clock import AdvancedClock
from libs.common.testing.fakeapi import FakeApi
from libs.common.testing.harness import OperatorHarness
from operators.jmxexporter.api.v1alpha1 import PROMETHEUS_JMX_EXPORTER, PrometheusJmxExporter
from operators.jmxexporter.controller import OPERATOR
from operators.jmxexporter.guard_calls import GuardCall
from operators.jmxexporter.guards import Guards
from operators.jmxexporter.injector.messages import KEY_VARIABLE, Action
from operators.jmxexporter.naming import STARTED
from operators.jmxexporter.reasons import Reason
from operators.jmxexporter.samples import (
    CONFIG_HASH,
    SHOP,
    build_config_map,
    build_exporter,
    build_pod,
)
from operators.jmxexporter.shown import JMX, condition, play, runs, status
from operators.jmxexporter.started import Started

CONFIG_KEY = Key("default", "jmx-config")


def hash_of(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


@dataclass
class FakeNetwork:
    """The guards of all pods, as the operator reaches them.

    Attributes:
        api: Where injectors left the public key.
        served: Hash that each pod serves, once it was sent another one.
        sent: Configurations that were accepted.
        silent: Whether no pod can be reached.
        refusal: What each guard has against a configuration.
        lies: What a guard says of itself instead.
        refused: Containers whose guard refused a configuration.
        asked: Number of requests.
    """

    api: FakeApi
    served: dict[str, str] = field(default_factory=dict)
    sent: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    asked: int = 0
    silent: bool = False
    refusal: str = ""
    lies: dict[str, str] = field(default_factory=dict)

    async def request(
        self,
        method: str,
        call: GuardCall,
        port: int,
        *,
        data: bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> tuple[int, dict[str, str]]:
        """Answer as the guard in Java does."""
        self.asked += 1
        if self.silent:
            raise aiohttp.ClientConnectionError("nobody listens")
        container = call.key.container_id
        nonce = f"n{len(self.sent)}"
        if method == "GET":
            said = {
                "id": call.id,
                "configHash": self.served.get(container, CONFIG_HASH),
                "audience": container,
                "nonce": nonce,
            }
            return 200, said | self.lies
        assert data is not None
        assert headers is not None
        text = "\n".join(
            ("slipway-jmx-config/1", call.id, container, nonce, hash_of(data.decode()))
        )
        signature = base64.b64decode(headers["Signature"])
        try:
            self.find_key().verify(signature, text.encode(), padding.PKCS1v15(), hashes.SHA256())
        except InvalidSignature:
            return 403, {}
        if self.refusal:
            self.refused.append(container)
            return 422, {"reason": self.refusal, "message": "the beans say no"}
        self.served[container] = hash_of(data.decode())
        self.sent.append(data.decode())
        said = {"configHash": self.served[container], "changed": "true"}
        return 200, said | {n: v for n, v in self.lies.items() if n == "lastScrapeFamilies"}

    def find_key(self) -> RSAPublicKey:
        """Return the key that the injector brought into the JVM."""
        injector = self.api.get(POD, SHOP)["spec"]["ephemeralContainers"][0]
        (text,) = (each["value"] for each in injector["env"] if each["name"] == KEY_VARIABLE)
        key = serialization.load_der_public_key(base64.b64decode(text))
        assert isinstance(key, RSAPublicKey)
        return key


@pytest.fixture
def network(api: FakeApi, monkeypatch: pytest.MonkeyPatch) -> FakeNetwork:
    network = FakeNetwork(api)
    # Of the class, so that each process of a test meets the same network.
    monkeypatch.setattr(Guards, "_request", staticmethod(network.request))
    return network


@pytest.fixture
async def signing(
    api: FakeApi, clock: AdvancedClock, network: FakeNetwork
) -> AsyncIterator[OperatorHarness]:
    """Run the operator with a Secret for its key."""
    api.create(build_object(SECRET, "signing", "default"))
    settings: dict[str, Any] = {"signing_secret": "signing", "pod_namespace": "default"}
    async with OperatorHarness(OPERATOR, api.config, clock=clock, **settings) as harness:
        yield harness


def edit(api: FakeApi, text: str) -> None:
    api.patch(CONFIG_MAP, CONFIG_KEY, {"data": {"config.yaml": text}})


def build_rule(number: int) -> str:
    return f"rules:\n- pattern: rule{number}\n"


async def test_fifty_edits_of_the_rules_cost_one_ephemeral_container(
    api: FakeApi, signing: OperatorHarness, network: FakeNetwork
) -> None:
    api.create(build_pod())
    api.create(build_exporter())
    await play(api, signing)

    for number in range(50):
        edit(api, build_rule(number))
        await play(api, signing)
        assert status(api)["metricsEndpoints"][0]["configHash"] == hash_of(build_rule(number))
        assert condition(api) == ("True", Reason.ALL_SERVING)

    assert len(runs(api)) == 1
    assert network.sent == [build_rule(number) for number in range(50)]


async def test_restart_of_the_operator_asks_once_and_writes_nothing(
    api: FakeApi, signing: OperatorHarness, network: FakeNetwork
) -> None:
    api.create(build_pod())
    api.create(build_exporter())
    await play(api, signing)
    edit(api, build_rule(1))
    await play(api, signing)
    mark, asked = api.mark(), network.asked

    await signing.restart()
    await play(api, signing)

    assert api.writes(since=mark) == []
    assert network.asked == asked + 1
    assert len(network.sent) == 1


async def test_rules_that_were_taken_back_while_the_operator_was_away_are_sent(
    api: FakeApi, signing: OperatorHarness, network: FakeNetwork
) -> None:
    api.create(build_pod())
    api.create(build_exporter())
    await play(api, signing)
    network.served["shop-0-app-0"] = hash_of(build_rule(1))

    await signing.restart()
    await play(api, signing)

    assert network.sent == [build_config_map()["data"]["config.yaml"]]
    assert status(api)["metricsEndpoints"][0]["configHash"] == CONFIG_HASH


async def test_guard_that_cannot_be_reached_gets_its_rules_by_an_injector(
    api: FakeApi, signing: OperatorHarness, network: FakeNetwork, clock: AdvancedClock
) -> None:
    api.create(build_pod())
    api.create(build_exporter())
    await play(api, signing)
    network.silent = True
    edit(api, build_rule(1))

    for attempt in range(4):
        await play(api, signing)
        clock.seconds += 60
        # Any event of the exporter makes it look at the time.
        api.patch(PROMETHEUS_JMX_EXPORTER, JMX, {"metadata": {"labels": {"n": str(attempt)}}})
    await play(api, signing)

    assert [run.request.config_hash for run in runs(api)] == [CONFIG_HASH, hash_of(build_rule(1))]


@pytest.mark.parametrize(
    "reason", [Reason.CONFIG_INVALID, Reason.TIMEOUT, Reason.AGENT_ERROR, Reason.NOT_SERVING]
)
async def test_rules_that_guards_refuse_are_told_and_leave_all_published(
    api: FakeApi, signing: OperatorHarness, network: FakeNetwork, reason: Reason
) -> None:
    names = [f"shop-{number}" for number in range(4)]
    for name in names:
        api.create(build_pod(name))
    api.create(build_exporter(maxConcurrent=1))
    await play(api, signing)
    network.refusal = reason
    edit(api, build_rule(1))
    await play(api, signing)

    assert condition(api, "ConfigValid") == ("False", Reason.CONFIG_INVALID)
    assert len(network.refused) == 2, "the first two JVMs that refuse the rules are the last"
    assert status(api)["instrumentedPods"] == 4
    assert {each["configHash"] for each in status(api)["metricsEndpoints"]} == {CONFIG_HASH}
    assert {len(runs(api, Key("default", name))) for name in names} == {1}

    network.refusal = ""
    edit(api, build_rule(2))
    await play(api, signing)
    assert condition(api) == ("True", Reason.ALL_SERVING)


@pytest.mark.parametrize(
    ("said", "words"),
    [
        (("200", "No group 2"), "jmx_scrape_error is 1): No group 2"),
        (("500", "negative value"), "failed with status 500: negative value"),
    ],
)
async def test_scrape_that_begins_to_fail_is_shown_until_it_works_again(
    api: FakeApi,
    signing: OperatorHarness,
    network: FakeNetwork,
    clock: AdvancedClock,
    said: tuple[str, str],
    words: str,
) -> None:
    api.create(build_pod())
    api.create(build_exporter())
    await play(api, signing)
    assert condition(api) == ("True", Reason.ALL_SERVING)
    network.lies = {"lastScrapeStatus": said[0], "lastScrapeError": said[1]}

    async def look(number: int) -> None:
        clock.seconds += 121
        api.patch(PROMETHEUS_JMX_EXPORTER, JMX, {"metadata": {"labels": {"n": str(number)}}})
        await play(api, signing)

    await look(1)

    assert condition(api) == ("False", Reason.TARGETS_FAILED)
    (failure,) = status(api)["failures"]
    assert failure["reason"] == Reason.SCRAPE_FAILED
    assert words in failure["message"]
    assert status(api)["metricsEndpoints"], "what it serves stays published"
    labels = {"object_namespace": "default", "object": "jmx"}
    assert signing.metric("jmxexporter_failing_scrapes", **labels) == 1

    network.lies = {}
    await look(2)
    assert condition(api) == ("True", Reason.ALL_SERVING)
    assert signing.metric("jmxexporter_failing_scrapes", **labels) == 0


async def test_rules_that_match_no_bean_of_a_jvm_are_told(
    api: FakeApi, signing: OperatorHarness, network: FakeNetwork, clock: AdvancedClock
) -> None:
    """A misspelled pattern fails nowhere, and takes the metrics of every JVM away."""
    api.create(build_pod())
    api.create(build_exporter())
    await play(api, signing)
    network.lies = {"lastScrapeFamilies": "0"}

    def message() -> str:
        found = find_condition(api.get(PROMETHEUS_JMX_EXPORTER, JMX), "Ready") or {}
        return str(found["message"])

    edit(api, build_rule(7))
    await play(api, signing)

    assert condition(api) == ("True", Reason.ALL_SERVING), "beans may be registered later"
    assert "shop-0/app: AllServing: no rule matches a bean of the JVM" in message()
    await signing.restart()
    await play(api, signing)
    assert "no rule matches" in message()

    network.lies = {"lastScrapeFamilies": "1"}
    clock.seconds += 121
    api.patch(PROMETHEUS_JMX_EXPORTER, JMX, {"metadata": {"labels": {"n": "1"}}})
    await play(api, signing)
    assert message() == "1 of 1 pods serve metrics"


async def test_endpoint_that_responds_no_longer_is_told_and_gets_one_injector(
    api: FakeApi, signing: OperatorHarness, network: FakeNetwork, clock: AdvancedClock
) -> None:
    """Something may have restarted the JVM inside its container, which nothing reports."""
    api.create(build_pod())
    api.create(build_exporter())
    await play(api, signing)
    assert condition(api) == ("True", Reason.ALL_SERVING)
    network.silent = True
    found = []

    for number in range(20):
        clock.seconds += 301
        api.patch(PROMETHEUS_JMX_EXPORTER, JMX, {"metadata": {"labels": {"n": str(number)}}})
        await play(api, signing)
        found.append((condition(api)[1], len(runs(api))))

    assert ("NotVerified", 1) in found
    assert found[0] == ("AllServing", 1), "one lost request tells nothing"
    assert found[-1] == ("AllServing", 2), "a network that is closed costs no further injector"


async def test_network_that_is_down_costs_no_injectors(
    api: FakeApi, signing: OperatorHarness, network: FakeNetwork, clock: AdvancedClock
) -> None:
    for name in ("shop-0", "shop-1"):
        api.create(build_pod(name))
    api.create(build_exporter())
    await play(api, signing)
    network.silent = True

    for number in range(12):
        clock.seconds += 301
        api.patch(PROMETHEUS_JMX_EXPORTER, JMX, {"metadata": {"labels": {"n": str(number)}}})
        await play(api, signing)

    assert condition(api) == ("Unknown", Reason.NOT_VERIFIED)
    assert [len(runs(api, Key("default", name))) for name in ("shop-0", "shop-1")] == [1, 1]


async def test_endpoints_are_asked_again_without_a_write(
    api: FakeApi, signing: OperatorHarness, network: FakeNetwork, clock: AdvancedClock
) -> None:
    api.create(build_pod())
    api.create(build_exporter())
    await play(api, signing)
    clock.seconds += 121
    api.patch(PROMETHEUS_JMX_EXPORTER, JMX, {"metadata": {"labels": {"n": "1"}}})
    mark, asked = api.mark(), network.asked

    await play(api, signing)

    assert (network.asked, api.writes(since=mark)) == (asked + 1, [])


async def test_other_ports_still_take_an_injector(
    api: FakeApi, signing: OperatorHarness, network: FakeNetwork
) -> None:
    api.create(build_pod())
    api.create(build_exporter())
    await play(api, signing)

    api.patch(PROMETHEUS_JMX_EXPORTER, JMX, {"spec": {"port": 9500}})
    await play(api, signing)

    assert [run.request.port for run in runs(api)] == [9400, 9500]
    assert network.sent == []


async def test_paused_exporter_asks_nobody(
    api: FakeApi, signing: OperatorHarness, network: FakeNetwork
) -> None:
    api.create(build_pod())
    api.create(build_exporter())
    await play(api, signing)
    api.patch(PROMETHEUS_JMX_EXPORTER, JMX, {"spec": {"mode": "Paused"}})
    await play(api, signing)
    asked = network.asked

    edit(api, build_rule(1))
    await play(api, signing)

    assert network.asked == asked


async def test_what_a_guard_says_is_cut_to_what_fits(
    api: FakeApi, signing: OperatorHarness, network: FakeNetwork
) -> None:
    api.create(build_pod())
    api.create(build_exporter())
    network.lies = {"configHash": "", "id": "somebody else"}
    await play(api, signing)

    assert condition(api) == ("True", Reason.ALL_SERVING)
    assert status(api)["metricsEndpoints"][0]["configHash"] == CONFIG_HASH


async def test_pod_that_began_with_the_exporter_is_ready_once_it_answers(
    api: FakeApi, signing: OperatorHarness, network: FakeNetwork
) -> None:
    exporter = PrometheusJmxExporter.parse(build_exporter())
    started = Started.of(exporter, ["app"])
    api.create(build_pod(annotations={STARTED: started.render()}))
    api.create(build_exporter())
    await play(api, signing)

    assert condition(api) == ("True", Reason.ALL_SERVING)
    (endpoint,) = status(api)["metricsEndpoints"]
    assert (endpoint["state"], endpoint["configHash"]) == ("StartedWith", CONFIG_HASH)
    assert [run.request.action for run in runs(api)] == list[Action]()


async def test_pod_that_only_claims_to_have_begun_with_the_exporter_is_not_ready(
    api: FakeApi, signing: OperatorHarness, network: FakeNetwork
) -> None:
    """The annotation may have been copied into a template, or the JVM has no such option."""
    exporter = PrometheusJmxExporter.parse(build_exporter())
    started = Started.of(exporter, ["app"])
    network.silent = True
    api.create(build_pod(annotations={STARTED: started.render()}))
    api.create(build_exporter())
    await play(api, signing)

    assert condition(api) == ("Unknown", Reason.NOT_VERIFIED)
    assert status(api)["metricsEndpoints"][0]["state"] == "NotVerified"


async def test_rules_that_a_jvm_refuses_in_its_file_are_shown(
    api: FakeApi, signing: OperatorHarness, network: FakeNetwork
) -> None:
    """Nobody waits for the answer of a JVM that reads its rules from a mounted ConfigMap."""
    exporter = PrometheusJmxExporter.parse(build_exporter())
    started = Started.of(exporter, ["app"])
    network.lies = {
        "refusedHash": CONFIG_HASH,
        "refusedReason": "ConfigInvalid",
        "refusedMessage": "No group 2",
    }
    api.create(build_pod(annotations={STARTED: started.render()}))
    api.create(build_exporter())
    await play(api, signing)

    assert condition(api, "ConfigValid") == ("False", Reason.CONFIG_INVALID)
    assert "No group 2" in status(api)["failures"][0]["message"]

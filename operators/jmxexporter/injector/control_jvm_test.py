"""A running endpoint takes configurations that the operator signed, and no others."""

from __future__ import annotations

import hashlib
import http.client
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from libs.common.testing.ports import find_free_port
from operators.jmxexporter.guard_calls import GuardCall, GuardKey, GuardState
from operators.jmxexporter.guards import Guards
from operators.jmxexporter.injector.access import Access
from operators.jmxexporter.injector.inject import run
from operators.jmxexporter.injector.messages import KEY_VARIABLE, Action, State
from operators.jmxexporter.injector.scrape import CONTROL_PATH, parse_answer
from operators.jmxexporter.jvms import CONFIG, Jvm, build_request, scrape_metrics
from operators.jmxexporter.reasons import Reason
from operators.jmxexporter.signing import SigningKey, generate_key, parse_key

type Start = Callable[..., Jvm]
OTHER = CONFIG.replace("shop_orders", "shop_sales")
CONTAINER = "c-1"
UID = "endpoint-1"


def build_key() -> SigningKey:
    import base64

    key = parse_key(base64.b64encode(generate_key()).decode())
    assert key is not None
    return key


@pytest.fixture(scope="module")
def key() -> SigningKey:
    return build_key()


@pytest.fixture
async def guards() -> AsyncIterator[Guards]:
    guards = Guards()
    yield guards
    await guards.close()


def inject(jvm: Jvm, port: int, key: SigningKey, **rest: Any) -> None:
    """Have an injector make the endpoint, with the key of the operator."""
    request = build_request(
        Action.ENSURE, port=port, id=UID, container_id=CONTAINER, timeout_seconds=60, **rest
    )
    report = run(request, CONFIG, jvm.jars, Access({KEY_VARIABLE: key.public_text}))
    assert [each.state for each in report.jvms] == [State.SERVING], report


def build_call(port: int, config: str | None) -> GuardCall:
    digest = hashlib.sha256((config or CONFIG).encode()).hexdigest()
    endpoint = GuardKey(CONTAINER, 1, 1)
    return GuardCall(endpoint, "127.0.0.1", (port,), UID, False, "run-1", digest, config)


async def send(guards: Guards, call: GuardCall, key: SigningKey) -> GuardState:
    """Call a guard, and return what it reported."""
    while not await guards.make(
        "u", [call], key, lambda: datetime.now(UTC), lambda: None, namespace="team"
    ):
        pass
    return guards.states("u")[call.key]


def put(port: int, body: bytes, signature: str | None) -> int:
    """Send a configuration as anything in the network could; returns the status."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    headers = {"Signature": signature} if signature is not None else {}
    connection.request("PUT", CONTROL_PATH, body, headers)
    status = connection.getresponse().status
    connection.close()
    return status


def read_nonce(port: int) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{CONTROL_PATH}", timeout=30) as answer:
        return parse_answer(answer.read().decode())["nonce"]


async def test_fifty_rules_reach_a_jvm_after_one_injection(
    start_jvm: Start, guards: Guards, key: SigningKey, release: int
) -> None:
    jvm, port = start_jvm(release=release), find_free_port()
    inject(jvm, port, key)
    printed = jvm.read_output()

    for number in range(50):
        config = CONFIG.replace("shop_orders", f"shop_orders_{number}")
        state = await send(guards, build_call(port, config), key)
        assert (state.reason, state.failures) == ("", 0), state
        assert state.config_hash == hashlib.sha256(config.encode()).hexdigest()

    metrics = scrape_metrics(port)
    assert "shop_orders_49" in metrics
    assert metrics["jmx_guard_config_reloads"].samples[0].value == 50
    assert jvm.read_output() == printed, "the agent was loaded once, and warned once"


async def test_rules_that_match_no_bean_are_told(
    start_jvm: Start, guards: Guards, key: SigningKey, release: int
) -> None:
    """Nothing fails with them, and no metric of a bean is left."""
    jvm, port = start_jvm(release=release), find_free_port()
    inject(jvm, port, key)
    assert not (await send(guards, build_call(port, None), key)).unmatched
    misspelled = CONFIG.replace("shop<", "shops<")

    state = await send(guards, build_call(port, misspelled), key)
    assert (state.reason, state.failures, state.unmatched) == ("", 0, True)
    assert (await send(guards, build_call(port, None), key)).unmatched

    assert "shop_orders" not in scrape_metrics(port)
    assert not (await send(guards, build_call(port, OTHER), key)).unmatched


async def test_warnings_of_the_runtime_are_as_documented(
    start_jvm: Start, key: SigningKey, release: int
) -> None:
    """Java 21 and later print four lines when an agent is loaded."""
    jvm, port = start_jvm(release=release), find_free_port()
    before = jvm.read_output().splitlines()

    inject(jvm, port, key)

    printed = jvm.read_output().splitlines()[len(before) :]
    assert len(printed) == (4 if release >= 21 else 0), printed
    assert all(line.startswith("WARNING: ") for line in printed)


async def test_bad_rules_are_refused_and_the_ones_before_stay(
    start_jvm: Start, guards: Guards, key: SigningKey, release: int
) -> None:
    jvm, port = start_jvm(release=release), find_free_port()
    inject(jvm, port, key)

    state = await send(guards, build_call(port, "rules:\n- pattern: '(['\n"), key)

    assert state.reason == Reason.CONFIG_INVALID, state
    assert "shop_orders" in scrape_metrics(port)


async def test_what_is_not_signed_by_the_operator_for_this_endpoint_is_refused(
    start_jvm: Start, guards: Guards, key: SigningKey, release: int
) -> None:
    jvm, port = start_jvm(release=release), find_free_port()
    inject(jvm, port, key)
    body, nonce = OTHER.encode(), read_nonce(port)

    assert put(port, body, None) == 403
    assert put(port, body, "no base64!") == 403
    assert put(port, body, build_key().sign(UID, CONTAINER, nonce, OTHER)) == 403
    assert put(port, body, key.sign("other", CONTAINER, nonce, OTHER)) == 403
    assert put(port, body, key.sign(UID, "other", nonce, OTHER)) == 403
    assert put(port, body, key.sign(UID, CONTAINER, "0" * 32, OTHER)) == 403
    assert put(port, body, key.sign(UID, CONTAINER, nonce, CONFIG)) == 403
    assert put(port, b"#" * (300 << 10), key.sign(UID, CONTAINER, nonce, OTHER)) == 413
    assert "shop_orders" in scrape_metrics(port)

    signature = key.sign(UID, CONTAINER, nonce, OTHER)
    assert put(port, body, signature) == 200
    assert "shop_sales" in scrape_metrics(port)

    # Recorded, and sent again after the operator has changed the rules back.
    await send(guards, build_call(port, CONFIG), key)
    assert put(port, body, signature) == 403
    assert "shop_orders" in scrape_metrics(port)


async def test_injector_and_operator_agree_on_what_is_served(
    start_jvm: Start, guards: Guards, key: SigningKey
) -> None:
    """After a change by the network an injector brings the first configuration again."""
    jvm, port = start_jvm(), find_free_port()
    inject(jvm, port, key)
    await send(guards, build_call(port, OTHER), key)

    inject(jvm, port, key)

    assert "shop_orders" in scrape_metrics(port)
    state = await send(guards, build_call(port, None), key)
    assert state.config_hash == hashlib.sha256(CONFIG.encode()).hexdigest()


async def test_guard_with_another_key_or_none_is_given_up(
    start_jvm: Start, guards: Guards, key: SigningKey
) -> None:
    jvm, port = start_jvm(), find_free_port()
    inject(jvm, port, key)

    state = await send(guards, build_call(port, OTHER), build_key())
    assert state.is_given_up
    assert "403" in state.message

    state = await send(guards, replace(build_call(port, OTHER), id="other"), key)
    assert state.failures
    assert "shop_orders" in scrape_metrics(port)


async def test_bean_that_hangs_blocks_neither_the_operator_nor_a_stop(
    start_jvm: Start, guards: Guards, key: SigningKey, tmp_path: Path, release: int
) -> None:
    hang = tmp_path / "hang"
    jvm, port = start_jvm(f"-Dshop.hang={hang}", release=release), find_free_port()
    inject(jvm, port, key)
    hang.touch()

    state = await send(guards, build_call(port, "rules:\n- pattern: .*\n"), key)

    assert state.reason == Reason.TIMEOUT, state
    assert jvm.inject_one(Action.STOP, id=UID).state is State.STOPPED
    with pytest.raises(urllib.error.URLError):
        scrape_metrics(port)
    hang.unlink()


async def test_guard_that_is_gone_is_asked_a_few_times_and_then_given_up(
    guards: Guards, key: SigningKey
) -> None:
    call = build_call(find_free_port(), OTHER)

    states = [await send(guards, call, key) for _ in range(3)]

    assert [state.failures for state in states] == [1, 2, 3]
    assert [state.is_given_up for state in states] == [False, False, True]

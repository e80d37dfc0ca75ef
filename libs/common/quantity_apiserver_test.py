"""Quantities: the real API server reads the same values from the same texts."""

import math
import random
from fractions import Fraction
from typing import Any

import pytest

from libs.common.client import Client
from libs.common.errors import BadRequest
from libs.common.kinds import POD, build_object
from libs.common.quantity import MAX_BINARY, canonicalize_quantity, parse_quantity

_SUFFIXES = ["", "", *"m k M G T P E Ki Mi Gi Ti Pi Ei e3 E6 e-2".split()]  # noqa: SIM905 short
_ODD = [
    *("0", "0Gi", "1e0", "0.5Gi", ".5Mi", "5.", "5.Gi", "+5Gi", "007Mi"),
    *("8Ei", "9999Ei", "1n", "0.1n", "1500u"),
]


def build_pod(quantities: list[str]) -> dict[str, Any]:
    """Build a pod that carries quantities as memory limits, one a container."""
    return build_object(
        POD,
        "quantities",
        "default",
        spec={
            "containers": [
                {"name": f"c{number}", "image": "none", "resources": {"limits": {"memory": text}}}
                for number, text in enumerate(quantities)
            ]
        },
    )


def round_up_to_milli(value: Fraction) -> Fraction:
    """Round as the server does with resources, whose smallest unit is a thousandth."""
    return Fraction(math.ceil(value * 1000), 1000)


@pytest.mark.apiserver
async def test_values_are_those_that_the_server_reads(kube_client: Client) -> None:
    rng = random.Random(7)
    whole = [str(rng.choice([1, 5, 100, 1000, 1024, rng.randrange(10**6)])) for _ in range(200)]
    parts = [f"{rng.randrange(100)}.{rng.randrange(1, 1000)}" for _ in range(200)]
    quantities = [text + rng.choice(_SUFFIXES) for text in (*whole, *parts)] + _ODD
    # The server itself loses count beyond 64 bits: it reads 1000E as 1.
    quantities = [text for text in quantities if parse_quantity(text) <= MAX_BINARY]

    pod = await kube_client.create(POD, build_pod(quantities), dry_run=True)

    shown = [each["resources"]["limits"]["memory"] for each in pod["spec"]["containers"]]
    assert [parse_quantity(text) for text in shown] == [
        round_up_to_milli(parse_quantity(text)) for text in quantities
    ]


@pytest.mark.apiserver
async def test_canonical_form_is_kept_by_the_server(kube_client: Client) -> None:
    quantities = [
        canonicalize_quantity(text) for text in ("0.5Gi", "1024Mi", "1000m", "1e3", "1.5k")
    ]

    pod = await kube_client.create(POD, build_pod(quantities), dry_run=True)

    shown = [each["resources"]["limits"]["memory"] for each in pod["spec"]["containers"]]
    assert shown == quantities


@pytest.mark.apiserver
@pytest.mark.parametrize("text", ["1gi", "1 Gi", "1e", "ten", "1.2.3", "--1"])
async def test_server_refuses_what_we_refuse(kube_client: Client, text: str) -> None:
    with pytest.raises(BadRequest):
        await kube_client.create(POD, build_pod([text]), dry_run=True)

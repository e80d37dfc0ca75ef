"""Checks on a real API server that it takes every generated CRD."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from libs.common import fastyaml
from libs.common.client import Client
from libs.common.kinds import CRD, Manifest, key_of
from tools.generate.sources import ROOT

pytestmark = pytest.mark.apiserver

_WAIT_SECONDS = 120.0
_CRDS = sorted(path.relative_to(ROOT) for path in ROOT.glob("helm/*/files/crds/*"))


@pytest.mark.parametrize("path", _CRDS, ids=str)
async def test_server_establishes_the_crd(kube_client: Client, path: Path) -> None:
    manifest = fastyaml.load((ROOT / path).read_text(encoding="utf-8"))

    await kube_client.apply(CRD, manifest, field_manager="test")

    conditions = await _wait_established(kube_client, manifest)
    assert "NonStructuralSchema" not in conditions


def test_there_are_crds_to_check() -> None:
    assert _CRDS


async def _wait_established(client: Client, manifest: Manifest) -> dict[str, str]:
    """Wait until the server serves the kind; returns the conditions of the CRD."""
    async with asyncio.timeout(_WAIT_SECONDS):
        while True:
            found = await client.get(CRD, key_of(manifest))
            # The status of a CRD that was made just now has a null in place of the list.
            stated = found.get("status", {}).get("conditions") or ()
            conditions = {one["type"]: one["status"] for one in stated}
            if conditions.get("Established") == "True":
                return conditions
            await asyncio.sleep(0.05)

"""Tests of what is generated for the kubectl plugin."""

from __future__ import annotations

import json

from tools.generate.plugin import (
    PATH,
    REFERENCE,
    render_plugin_kinds,
    render_plugin_reference,
)
from tools.generate.sources import ROOT, load_operators


def test_kinds_have_operator_reasons_and_verbs() -> None:
    kinds = json.loads(render_plugin_kinds(load_operators(ROOT))[PATH])
    claim = kinds["IPClaim"]
    assert (claim["operator"], claim["group"]) == ("ipam", "ipam.slipway.dev")
    assert claim["reasons"]["PoolNotFound"].startswith("PoolNotFound means that")
    assert claim["verbs"]["status"] == ["get", "patch"]
    assert "Ready" in claim["conditions"]
    assert kinds["InstanceSize"]["conditions"] == []


def test_the_reference_has_every_command_with_its_arguments() -> None:
    page = render_plugin_reference()[REFERENCE]
    assert "## `kubectl slipway vm resize`" in page
    assert "| `--size` *SIZE* | name of an InstanceSize |" in page
    assert "| `--to` *POSITION* | earliest, latest or a time (RFC 3339); required |" in page
    assert "| `-o`, `--output` *table\\|json\\|yaml* | output format; default: table |" in page
    assert "--kubeconfig` *FILE*" not in page

"""CEL rules of custom kinds, for the differential test."""

from __future__ import annotations

from typing import Any

import pytest

from libs.common.kinds import Manifest
from libs.common.testing.fakeapi.parity import Compare, Recorder
from libs.common.testing.fakeapi.rest import MERGE_PATCH

_GROUP = "ruled.example.com"


def _rule(text: str, **options: Any) -> Manifest:
    return {"rule": text, **options}


def _text(*rules: Manifest, **options: Any) -> Manifest:
    limits = {"type": "string", "maxLength": 64}
    return {**limits, **options, "x-kubernetes-validations": list(rules)}


_PORT: Manifest = {
    "type": "object",
    "required": ["name"],
    "properties": {
        "name": {"type": "string", "maxLength": 20},
        "number": {
            "type": "integer",
            "x-kubernetes-validations": [
                _rule("self >= oldSelf", message="never lower"),
            ],
        },
    },
    "x-kubernetes-validations": [_rule("self.name != 'root'", message="root is taken")],
}
_SPEC: Manifest = {
    "type": "object",
    "properties": {
        "low": {"type": "integer"},
        "high": {"type": "integer"},
        "fixed": _text(_rule("self == oldSelf", messageExpression="'it was ' + oldSelf")),
        "address": _text(
            _rule("isIP(self)"), _rule("!isIP(self) || ip.isCanonical(self)", message="not short")
        ),
        "network": _text(_rule("isCIDR(self) && cidr(self) == cidr(self).masked()")),
        "inside": _text(_rule("cidr('10.0.0.0/8').containsIP(ip(self))")),
        "amount": {
            "x-kubernetes-int-or-string": True,
            "x-kubernetes-validations": [
                _rule(
                    "type(self) == int ? self > 0 : isQuantity(self) && "
                    "quantity(self).compareTo(quantity('1Mi')) >= 0"
                )
            ],
        },
        "namespace": _text(_rule("self.split('-').size() == 2 && self.indexOf('-') == 1")),
        "ports": {
            "type": "array",
            "maxItems": 4,
            "items": _PORT,
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["name"],
        },
        "args": {
            "type": "array",
            "maxItems": 4,
            "items": _text(_rule("self.startsWith('-')")),
        },
        "options": {
            "type": "object",
            "maxProperties": 4,
            "additionalProperties": _text(_rule("self.matches('^[a-z]+$')")),
            "x-kubernetes-validations": [_rule("self.all(key, key.size() <= 3)")],
        },
        "once": {"type": "string", "maxLength": 8},
    },
    "x-kubernetes-validations": [
        _rule("!has(self.low) || !has(self.high) || self.low <= self.high", fieldPath=".low"),
        _rule("!has(self.low) || has(self.high)", reason="FieldValueRequired", message="say high"),
        _rule("self.__namespace__ != 'a-z'", message="never a-z"),
        _rule(
            "!oldSelf.hasValue() || !has(oldSelf.value().once) || has(self.once)",
            optionalOldSelf=True,
            reason="FieldValueForbidden",
            message="once is kept",
        ),
    ],
}
_SCHEMA: Manifest = {
    "type": "object",
    "required": ["spec"],
    "properties": {"spec": _SPEC},
    "x-kubernetes-validations": [_rule("self.metadata.name.size() <= 5", message="long name")],
}
_CRD: Manifest = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": f"ruleds.{_GROUP}"},
    "spec": {
        "group": _GROUP,
        "scope": "Namespaced",
        "names": {"kind": "Ruled", "plural": "ruleds"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {"openAPIV3Schema": _SCHEMA},
            }
        ],
    },
}
_GOOD: Manifest = {"namespace": "a-b"}


def _build(name: str, spec: Manifest) -> Manifest:
    return {
        "apiVersion": f"{_GROUP}/v1",
        "kind": "Ruled",
        "metadata": {"name": name},
        "spec": {**_GOOD, **spec},
    }


_CREATED: dict[str, Manifest] = {
    "order": {"low": 2, "high": 1},
    "required": {"low": 2},
    "address": {"address": "nobody"},
    "long": {"address": "2001:0DB8::1"},
    "mapped": {"address": "::ffff:1.2.3.4"},
    "net": {"network": "10.0.0.1/8"},
    "net6": {"network": "2001:db8::/32"},
    "inside": {"inside": "11.0.0.1"},
    "five": {"amount": 5},
    "zero": {"amount": 0},
    "small": {"amount": "1Ki"},
    "text": {"amount": "much"},
    "amount": {"amount": "2Mi"},
    "parts": {"namespace": "ab-c"},
    "never": {"namespace": "a-z"},
    "root": {"ports": [{"name": "web"}, {"name": "root"}]},
    "args": {"args": ["-a", "b"]},
    "value": {"options": {"abc": "x", "d": "X"}},
    "key": {"options": {"abcd": "x"}},
    "many": {"args": ["-a"] * 5, "low": 2},
    "number": {"low": "x"},
    "pair": {"low": 3, "high": 1, "address": "x"},
}
_CHANGED: dict[str, Manifest] = {
    "fixed": {"fixed": "b"},
    "removed": {"fixed": None},
    "lower": {"ports": [{"name": "dns", "number": 1}, {"name": "web", "number": 7}]},
    "args": {"args": ["-c", "-a"]},
    "once": {"once": None},
    "same": {"low": 1},
}


async def _rules(r: Recorder) -> None:
    crds = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    made = await r.rest.send("POST", crds, _CRD)
    assert made.status == 201, made.body["message"]
    base = r.path("ruleds", api=f"apis/{_GROUP}/v1")
    await r.until_found(base)
    for label, spec in _CREATED.items():
        await r.send(label, "POST", base, _build(label[:5], spec))
    await r.send("name", "POST", base, _build("endless", {}))
    spec = {
        "fixed": "a",
        "once": "x",
        "low": 1,
        "high": 2,
        "args": ["-a", "-b"],
        "ports": [{"name": "web", "number": 8}, {"name": "dns", "number": 5}],
    }
    await r.send("base", "POST", base, _build("base", spec))
    for label, change in _CHANGED.items():
        body = {"spec": change}
        await r.send(label, "PATCH", f"{base}/base", body, content_type=MERGE_PATCH)


@pytest.mark.apiserver
async def test_rules_refuse_what_the_real_server_refuses(compare: Compare) -> None:
    await compare(_rules)

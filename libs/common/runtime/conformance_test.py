"""The conformance suite, on the widget operator, with both event sources."""

from __future__ import annotations

from typing import Final

from libs.common.kinds import CONFIG_MAP, Manifest
from libs.common.testing.conformance import OperatorConformance, Subject
from libs.common.testing.fakeapi.registry import build_crd
from libs.common.testing.widget import OPERATOR, WIDGET, build_widget

_SCHEMA: Final[Manifest] = {
    "type": "object",
    "x-kubernetes-preserve-unknown-fields": True,
    "properties": {
        "status": {
            "type": "object",
            "x-kubernetes-preserve-unknown-fields": True,
            "default": {"observedGeneration": 0},
            "properties": {"observedGeneration": {"type": "integer"}},
        }
    },
}
"""Schema of a Widget whose unseen objects are not current, as in each generated CRD."""


def build_subject(source: str) -> Subject:
    return Subject(
        operator=OPERATOR,
        crds=(build_crd(WIDGET, _SCHEMA, ("status",)),),
        objects=lambda: (build_widget(),),
        change={"spec": {"count": 3, "text": "changed"}},
        children=(CONFIG_MAP,),
        settings={"source": source},
    )


class TestReflectorConformance(OperatorConformance):
    subject = build_subject("reflector")


class TestKopfConformance(OperatorConformance):
    subject = build_subject("kopf")

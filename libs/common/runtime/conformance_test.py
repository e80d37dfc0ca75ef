"""The conformance suite, on the widget operator, with both event sources."""

from __future__ import annotations

from libs.common.kinds import CONFIG_MAP
from libs.common.testing.conformance import OperatorConformance, Subject
from libs.common.testing.fakeapi.registry import build_crd
from libs.common.testing.widget import OPERATOR, WIDGET, build_widget


def build_subject(source: str) -> Subject:
    return Subject(
        operator=OPERATOR,
        crds=(build_crd(WIDGET, None, ("status",)),),
        objects=lambda: (build_widget(),),
        change={"spec": {"count": 3, "text": "changed"}},
        children=(CONFIG_MAP,),
        settings={"source": source},
    )


class TestReflectorConformance(OperatorConformance):
    subject = build_subject("reflector")


class TestKopfConformance(OperatorConformance):
    subject = build_subject("kopf")

"""A small operator that exists only for the tests of the generator."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

from pydantic import Field

from libs.common.crd import (
    AGE,
    Conditions,
    Count,
    CustomResource,
    DnsLabel,
    Immutable,
    KubernetesModel,
    ListMap,
    PrinterColumn,
    Rule,
    Scale,
    kind_of,
)
from libs.common.kinds import POD, STORAGE_CLASS
from libs.common.metric_specs import MetricKind, MetricSpec
from libs.common.project.sources import OperatorSource
from libs.common.rbac import children, own, reads
from libs.common.settings import CommaList, CommonSettings, operator_settings


class ConditionType(StrEnum):
    """Conditions of a Boat."""

    READY = "Ready"
    """Ready is True when
    the boat floats."""


class Reason(StrEnum):
    """Reasons of the conditions of a Boat."""

    AFLOAT = "Afloat"
    """Afloat means that the boat floats."""
    SUNK = "Sunk"


class Mast(KubernetesModel):
    """Mast is a part of a boat."""

    name: DnsLabel
    """name tells masts apart."""


class BoatSpec(KubernetesModel):
    """BoatSpec is what a user asks for."""

    crew: Annotated[int, Field(ge=0, le=9)] = 1
    """crew is the number of sailors."""
    home: Annotated[DnsLabel | None, Immutable()] = None
    """home is the harbor | port."""
    masts: Annotated[list[Mast], ListMap("name"), Field(max_length=3)] = []
    """masts carry sails."""


class BoatStatus(KubernetesModel):
    """BoatStatus is what was observed."""

    conditions: Conditions = []
    """conditions tell whether the boat floats."""
    aboard: Count = 0
    """aboard is the number of sailors on the boat."""


class Boat(
    CustomResource,
    group="sea.example.com",
    version="v1",
    plural="boats",
    short_names=("bt",),
    scale=Scale(".spec.crew", ".status.aboard"),
    columns=(PrinterColumn("Crew", "integer", ".spec.crew"), AGE),
    rules=(Rule("size(self.metadata.name) < 9", "name must be short"),),
    conditions=ConditionType,
    reasons=Reason,
):
    """Boat floats."""

    spec: BoatSpec
    status: BoatStatus | None = None


class Settings(CommonSettings):
    """Settings of the operator."""

    model_config = operator_settings("fleet")

    sail_colors: CommaList = ()
    """sail_colors are the colors to use, like retry_period_seconds they can change."""
    flag: str
    """flag is the flag of the fleet."""


FLEET = OperatorSource(
    id="fleet",
    resources=(Boat,),
    rules=(*own(kind_of(Boat)), *children(POD, "create"), *reads(STORAGE_CLASS)),
    settings=Settings,
    metrics=(MetricSpec("fleet_sunk_total", MetricKind.COUNTER, "Boats that sank.", ("cause",)),),
    code=Path("operators", "fleet"),
    chart=Path("helm", "fleet"),
    generator="tools/generate",
    summary="Keeps boats afloat.",
    modules={"settings": "settings.py"},
)
"""The operator as the generator sees it."""

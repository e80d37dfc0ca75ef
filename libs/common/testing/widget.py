"""Widget: a small operator of nothing useful, on which the runtime itself is tested.

A Widget asks for `spec.count` ConfigMaps named `<widget>-<number>`, with `spec.text` in them, and
tells in its status how many there are.
"""

from __future__ import annotations

from typing import Any, Final

from libs.common.conditions import READY, Condition, build_conditions, conditions_of
from libs.common.errors import TerminalError
from libs.common.kinds import CONFIG_MAP, Key, Kind, Manifest, build_object, key_of
from libs.common.labels import MANAGED_BY
from libs.common.plan import Apply, Delete, Step
from libs.common.runtime import Context, Controller, Operator, Result
from libs.common.runtime.informer import SourceName
from libs.common.settings import CommonSettings, operator_settings

WIDGET: Final = Kind("test.slipway.dev", "v1", "Widget", "widgets")
FINALIZER: Final = "test.slipway.dev/finalizer"
MAX_COUNT: Final = 100
CONDITIONS: Manifest = {
    "type": "object",
    "x-kubernetes-preserve-unknown-fields": True,
    "properties": {
        "status": {
            "type": "object",
            "x-kubernetes-preserve-unknown-fields": True,
            "properties": {
                "conditions": {
                    "type": "array",
                    "x-kubernetes-list-type": "map",
                    "x-kubernetes-list-map-keys": ["type"],
                    "items": {
                        "type": "object",
                        "required": ["type"],
                        "properties": {"type": {"type": "string"}},
                        "x-kubernetes-preserve-unknown-fields": True,
                    },
                }
            },
        }
    },
}
"""Schema of a Widget whose conditions are a map by type, as in each generated CRD."""


class Settings(CommonSettings):
    """Settings of the widget operator."""

    model_config = operator_settings("widget")

    source: SourceName = "kopf"
    """source is the event source of both kinds."""


def build_widget(name: str = "w", namespace: str = "default", **spec: Any) -> Manifest:
    """Build a Widget; `count` is 2 and `text` is `hello` unless given."""
    return build_object(WIDGET, name, namespace, spec={"count": 2, "text": "hello", **spec})


def build_config_map(ctx: Context, number: int) -> Manifest:
    """Build one child."""
    return build_object(
        CONFIG_MAP,
        f"{ctx.key.name}-{number}",
        ctx.key.namespace,
        metadata={"labels": {MANAGED_BY: "widget"}, "ownerReferences": [ctx.owner_reference()]},
        data={"text": ctx.primary["spec"]["text"]},
    )


def plan_widget(ctx: Context) -> list[Step]:
    """Plan the children: apply those that are asked for, delete the others."""
    count = ctx.primary["spec"]["count"]
    wanted = [build_config_map(ctx, number) for number in range(count)]
    names = {manifest["metadata"]["name"] for manifest in wanted}
    surplus = [
        manifest
        for manifest in ctx.children(CONFIG_MAP)
        if manifest["metadata"]["name"] not in names
    ]
    applies: list[Step] = [Apply(CONFIG_MAP, manifest) for manifest in wanted]
    return [*applies, *(Delete.of(CONFIG_MAP, manifest) for manifest in surplus)]


async def reconcile(ctx: Context) -> Result | None:
    """Make the ConfigMaps be what the Widget asks for."""
    count = ctx.primary["spec"]["count"]
    if count > MAX_COUNT:
        message = f"{ctx}: spec.count: {count} is more than {MAX_COUNT}; lower it"
        raise TerminalError("TooMany", message, field="spec.count")
    outcome = await ctx.execute(plan_widget(ctx))
    await ctx.apply_status(_build_status(ctx, count))
    return Result.from_outcome(outcome)


async def finalize(ctx: Context) -> Result | None:
    """Let a Widget go once nothing holds it: a ConfigMap `<widget>-hold` does."""
    hold = Key(ctx.key.namespace, f"{ctx.key.name}-hold")
    return Result(requeue_after=30.0) if ctx.get(CONFIG_MAP, hold) else None


def _build_status(ctx: Context, count: int) -> Manifest:
    made = len(ctx.children(CONFIG_MAP))
    ready = (
        Condition.true(READY, "AllMade")
        if made == count
        else Condition.false(READY, "Missing", f"{made} of {count} ConfigMaps exist")
    )
    held = conditions_of(ctx.primary)
    return {
        "made": made,
        "observedGeneration": ctx.generation,
        "conditions": build_conditions(held, [ready], generation=ctx.generation, now=ctx.now()),
    }


def map_hold(manifest: Manifest, _: object) -> list[Key]:
    """Enqueue the Widget that a hold is for."""
    key = key_of(manifest)
    if not key.name.endswith("-hold"):
        return []
    return [Key(key.namespace, key.name.removesuffix("-hold"))]


def build_controller(settings: Settings) -> Controller:
    """Declare the controller of Widgets."""
    return (
        Controller(
            "widget",
            primary=WIDGET,
            reconcile=reconcile,
            finalize=finalize,
            finalizer=FINALIZER,
            source=settings.source,
        )
        .owns(CONFIG_MAP, source=settings.source, writes=("create", "patch", "delete"))
        .watches(CONFIG_MAP, map_hold)
    )


OPERATOR: Final = Operator(
    "widget", (build_controller,), settings=Settings, summary="Tests the runtime."
)

"""The columns that `kubectl get` shows: of custom kinds by their CRD, of usual built-in kinds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Final

import orjson

from libs.common.kinds import Manifest
from libs.common.reading import map_at, maps_at, text_at
from libs.common.testing.fakeapi.jsonpath import parse_path
from libs.common.testing.fakeapi.pod_columns import list_pod_cells, list_row_conditions

NONE: Final = "<none>"
UNKNOWN: Final = "<unknown>"
_NAME_TEXT: Final = (
    "Name must be unique within a namespace. Is required when creating resources, although some"
    " resources may allow a client to request the generation of an appropriate name automatically."
    " Name is primarily intended for creation idempotence and configuration definition. Cannot be"
    " updated. More info:"
    " https://kubernetes.io/docs/concepts/overview/working-with-objects/names#names"
)

type Cells = Callable[[Manifest, datetime], list[Any]]
"""Returns the cells of an object."""


@dataclass(frozen=True, slots=True)
class Columns:
    """The columns of one kind.

    Attributes:
        definitions: Column definitions, as in a `Table`.
        cells: Returns the cells of an object.
        conditions: Returns the conditions of its row, such as that it has ended.
    """

    definitions: Sequence[Manifest]
    cells: Cells
    conditions: Callable[[Manifest], list[Manifest]] = lambda _: []


def find_columns(group: str, plural: str) -> Columns:
    """Return the columns of a built-in kind; of a kind without printers, name and time."""
    return _BUILTIN.get((group, plural), _PLAIN)


def build_custom_columns(printed: Sequence[Mapping[str, Any]]) -> Columns:
    """Build the columns of a custom kind from `additionalPrinterColumns`."""
    age = {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}
    columns = printed or [age]
    paths = [(each["type"], parse_path(each["jsonPath"])) for each in columns]

    def cells(obj: Manifest, now: datetime) -> list[Any]:
        return [_name(obj), *(_render(type_, find(obj), now) for type_, find in paths)]

    definitions = [
        {
            "name": each["name"],
            "type": each["type"],
            "format": each.get("format", ""),
            "description": each.get("description") or _describe(each["jsonPath"]),
            "priority": each.get("priority", 0),
        }
        for each in columns
    ]
    return Columns([*_define("Name"), *definitions], cells)


def _name(obj: Manifest) -> str:
    return text_at(obj, "metadata", "name")


def _describe(path: str) -> str:
    return f"Custom resource definition column (in JSONPath format): {path}"


def _render(type_: str, found: list[Any], now: datetime) -> Any:
    if not found or found[0] is None:
        return None
    value = found[0]
    match type_:
        case "date":
            return render_age(value, now)
        case "integer":
            return int(value) if isinstance(value, int | float) else None
        case "number":
            return value if isinstance(value, int | float) else None
        case "boolean":
            return value if isinstance(value, bool) else None
    return _to_text(value)


def _to_text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict | list):
        return orjson.dumps(value).decode()
    return str(value)


def render_age(since: Any, now: datetime) -> str:
    """Return how long ago a time was, as `kubectl get` shows it."""
    try:
        moment = datetime.fromisoformat(since)
    except (ValueError, TypeError):
        return "<invalid>" if since else UNKNOWN
    return render_duration((now - moment.astimezone(UTC)).total_seconds())


def render_duration(seconds: float) -> str:
    """Return a duration in the units that matter, such as `5m30s`, `3h` or `12d`."""
    whole = int(seconds)
    if whole < -1:
        return "<invalid>"
    minutes, hours, days = whole // 60, whole // 3600, whole // 86_400
    if whole < 2 * 60:
        return f"{max(0, whole)}s"
    if minutes < 10:
        return f"{minutes}m{whole % 60}s" if whole % 60 else f"{minutes}m"
    if hours < 3:
        return f"{minutes}m"
    if hours < 8:
        return f"{hours}h{minutes % 60}m" if minutes % 60 else f"{hours}h"
    if hours < 48:
        return f"{hours}h"
    if hours < 8 * 24:
        return f"{days}d{hours % 24}h" if hours % 24 else f"{days}d"
    years = hours // (24 * 365)
    if years < 2:
        return f"{days}d"
    if years < 8:
        rest = days % 365
        return f"{years}y{rest}d" if rest else f"{years}y"
    return f"{years}y"


def _age(obj: Manifest, now: datetime) -> str:
    return render_age(text_at(obj, "metadata", "creationTimestamp"), now)


# -- built-in kinds -------------------------------------------------------------------------------


def _pods(pod: Manifest, now: datetime) -> list[Any]:
    return list_pod_cells(pod, lambda since: render_age(since, now))


def _claims(claim: Manifest, now: datetime) -> list[Any]:
    spec, status = map_at(claim, "spec"), map_at(claim, "status")
    deleting = claim["metadata"].get("deletionTimestamp")
    bound = bool(spec.get("volumeName"))
    return [
        "Terminating" if deleting else status.get("phase", ""),
        spec.get("volumeName", ""),
        text_at(status, "capacity", "storage") if bound else "",
        _modes(status) if bound else "",
        spec.get("storageClassName", ""),
        spec.get("volumeAttributesClassName") or "<unset>",
        _age(claim, now),
        spec.get("volumeMode") or "<unset>",
    ]


def _volumes(volume: Manifest, now: datetime) -> list[Any]:
    spec, status = map_at(volume, "spec"), map_at(volume, "status")
    deleting = volume["metadata"].get("deletionTimestamp")
    claim = map_at(spec, "claimRef")
    return [
        text_at(spec, "capacity", "storage"),
        _modes(spec),
        spec.get("persistentVolumeReclaimPolicy", ""),
        "Terminating" if deleting else status.get("phase", ""),
        f"{claim.get('namespace', '')}/{claim.get('name', '')}" if claim else "",
        spec.get("storageClassName", ""),
        spec.get("volumeAttributesClassName") or "<unset>",
        status.get("reason", ""),
        _age(volume, now),
        spec.get("volumeMode") or "<unset>",
    ]


def _modes(where: Mapping[str, Any]) -> str:
    short = {
        "ReadWriteOnce": "RWO",
        "ReadOnlyMany": "ROX",
        "ReadWriteMany": "RWX",
        "ReadWriteOncePod": "RWOP",
    }
    held = where.get("accessModes") or ()
    return ",".join(shown for mode, shown in short.items() if mode in held)


def _nodes(node: Manifest, now: datetime) -> list[Any]:
    status = map_at(node, "status")
    info = map_at(status, "nodeInfo")
    conditions = {each["type"]: each["status"] for each in maps_at(status, "conditions")}
    ready = {"True": "Ready"}.get(conditions.get("Ready", ""), "NotReady")
    states = [ready if "Ready" in conditions else "Unknown"]
    if map_at(node, "spec").get("unschedulable"):
        states.append("SchedulingDisabled")
    addresses = {each["type"]: each["address"] for each in maps_at(status, "addresses")}
    return [
        ",".join(states),
        _roles(node),
        _age(node, now),
        info.get("kubeletVersion", ""),
        addresses.get("InternalIP", NONE),
        addresses.get("ExternalIP", NONE),
        info.get("osImage") or UNKNOWN,
        info.get("kernelVersion") or UNKNOWN,
        info.get("containerRuntimeVersion") or UNKNOWN,
    ]


def _roles(node: Manifest) -> str:
    labels = node["metadata"].get("labels") or {}
    prefix = "node-role.kubernetes.io/"
    roles = {name.removeprefix(prefix) for name in labels if name.startswith(prefix)}
    roles |= {labels["kubernetes.io/role"]} if labels.get("kubernetes.io/role") else set()
    return ",".join(sorted(roles)) or NONE


def _events(event: Manifest, now: datetime) -> list[Any]:
    def age(*path: str) -> str:
        value = text_at(event, *path)
        return render_age(value, now)

    first, last = age("firstTimestamp"), age("lastTimestamp")
    if not event.get("firstTimestamp"):
        first = age("eventTime")
    if series := map_at(event, "series"):
        last = age("series", "lastObservedTime")
    elif not event.get("lastTimestamp"):
        last = first
    target, source = map_at(event, "involvedObject"), map_at(event, "source")
    component = source.get("component") or event.get("reportingComponent", "")
    host = source.get("host") or event.get("reportingInstance", "")
    return [
        last,
        event.get("type", ""),
        event.get("reason", ""),
        (
            f"{target.get('kind', '').lower()}/{target.get('name', '')}"
            if target.get("name")
            else target.get("kind", "").lower()
        ),
        target.get("fieldPath", ""),
        ", ".join(filter(None, (component, host))),
        str(event.get("message", "")).strip(),
        first,
        series.get("count") or event.get("count") or 1,
        event["metadata"].get("name", ""),
    ]


def _services(service: Manifest, now: datetime) -> list[Any]:
    spec = map_at(service, "spec")
    ips = spec.get("clusterIPs") or [spec.get("clusterIP") or NONE]
    kind = spec.get("type", "")
    return [
        kind,
        ips[0] if kind != "ExternalName" else NONE,
        _external(service, kind),
        ",".join(map(_port, maps_at(spec, "ports"))) or NONE,
        _age(service, now),
        _labels(spec.get("selector")),
    ]


def _external(service: Manifest, kind: str) -> str:
    spec = map_at(service, "spec")
    own = list(spec.get("externalIPs") or ())
    if kind == "ExternalName":
        return text_at(spec, "externalName")
    if kind == "LoadBalancer":
        found = maps_at(service, "status", "loadBalancer", "ingress")
        own = [each.get("ip") or each.get("hostname") for each in found] + own
        return ",".join(own) or "<pending>"
    return ",".join(own) or NONE


def _port(port: Mapping[str, Any]) -> str:
    node = f":{port['nodePort']}" if port.get("nodePort") else ""
    return f"{port['port']}{node}/{port.get('protocol', 'TCP')}"


def _labels(labels: Any) -> str:
    return ",".join(f"{name}={labels[name]}" for name in sorted(labels or {})) or NONE


def _selector(obj: Manifest) -> str:
    selector = map_at(obj, "spec", "selector")
    parts = [_labels(selector["matchLabels"])] if selector.get("matchLabels") else []
    for each in maps_at(selector, "matchExpressions"):
        values = ",".join(each.get("values") or ())
        operator = {"In": " in ", "NotIn": " notin "}.get(each["operator"])
        if operator:
            parts.append(f"{each['key']}{operator}({values})")
        else:
            parts.append(f"{'' if each['operator'] == 'Exists' else '!'}{each['key']}")
    return ",".join(parts) or NONE


def _containers(obj: Manifest) -> list[str]:
    found = maps_at(obj, "spec", "template", "spec", "containers")
    return [",".join(each["name"] for each in found), ",".join(each["image"] for each in found)]


def _deployments(deployment: Manifest, now: datetime) -> list[Any]:
    spec, status = map_at(deployment, "spec"), map_at(deployment, "status")
    return [
        f"{status.get('readyReplicas', 0)}/{spec.get('replicas', 0)}",
        status.get("updatedReplicas", 0),
        status.get("availableReplicas", 0),
        _age(deployment, now),
        *_containers(deployment),
        _selector(deployment),
    ]


def _replica_sets(owner: Manifest, now: datetime) -> list[Any]:
    status = map_at(owner, "status")
    return [
        map_at(owner, "spec").get("replicas", 0),
        status.get("replicas", 0),
        status.get("readyReplicas", 0),
        _age(owner, now),
        *_containers(owner),
        _selector(owner),
    ]


def _stateful_sets(owner: Manifest, now: datetime) -> list[Any]:
    ready = map_at(owner, "status").get("readyReplicas", 0)
    wanted = map_at(owner, "spec").get("replicas", 0)
    return [f"{ready}/{wanted}", _age(owner, now), *_containers(owner)]


def _budgets(budget: Manifest, now: datetime) -> list[Any]:
    spec, status = map_at(budget, "spec"), map_at(budget, "status")
    limits = (spec.get(name) for name in ("minAvailable", "maxUnavailable"))
    shown = ["N/A" if each is None else str(each) for each in limits]
    return [*shown, status.get("disruptionsAllowed", 0), _age(budget, now)]


def _classes(storage_class: Manifest, now: datetime) -> list[Any]:
    notes = storage_class["metadata"].get("annotations") or {}
    default = notes.get("storageclass.kubernetes.io/is-default-class") == "true"
    name = storage_class["metadata"]["name"]
    return [
        f"{name} (default)" if default else name,
        storage_class.get("provisioner", ""),
        storage_class.get("reclaimPolicy", "Delete"),
        storage_class.get("volumeBindingMode", "Immediate"),
        bool(storage_class.get("allowVolumeExpansion")),
        _age(storage_class, now),
    ]


def _role_bindings(binding: Manifest, now: datetime) -> list[Any]:
    role = map_at(binding, "roleRef")
    subjects: dict[str, list[str]] = {"User": [], "Group": [], "ServiceAccount": []}
    for each in maps_at(binding, "subjects"):
        named = f"{each['namespace']}/{each['name']}" if each.get("namespace") else each["name"]
        subjects[each["kind"]].append(named)
    shown = [", ".join(names) for names in subjects.values()]
    return [f"{role.get('kind', '')}/{role.get('name', '')}", _age(binding, now), *shown]


def _metric(metric: Mapping[str, Any]) -> str:
    """Return a metric as it is shown before its first measurement."""
    goal = map_at(metric, "resource", "target").get("averageUtilization")
    shown = UNKNOWN if goal is None else f"{UNKNOWN}/{goal}%"
    return f"{text_at(metric, 'resource', 'name')}: {shown}"


def _autoscalers(scaler: Manifest, now: datetime) -> list[Any]:
    spec, status = map_at(scaler, "spec"), map_at(scaler, "status")
    target = map_at(spec, "scaleTargetRef")
    return [
        f"{target.get('kind', '')}/{target.get('name', '')}",
        ", ".join(map(_metric, maps_at(spec, "metrics"))) or NONE,
        str(spec.get("minReplicas", "<unset>")),
        spec.get("maxReplicas", 0),
        status.get("currentReplicas", 0),
        _age(scaler, now),
    ]


def _date(obj: Manifest, _: datetime) -> list[Any]:
    return [text_at(obj, "metadata", "creationTimestamp")]


def _define(titles: str) -> list[Manifest]:
    """Define columns by titles: `#` marks numbers, `@` times, `+` those of `-o wide`."""
    return [
        {
            "name": title.strip("#@+"),
            "type": {"#": "integer", "@": "date"}.get(title[0], "string"),
            "format": "name" if title.strip("+") == "Name" else "",
            "description": _NAME_TEXT if title.strip("+") == "Name" else "",
            "priority": int(title.endswith("+")),
        }
        for title in titles.split(",")
    ]


def _build(titles: str, cells: Cells) -> Columns:
    """Build the columns of a kind whose first one is the name."""
    return Columns(_define(f"Name,{titles}"), lambda obj, now: [_name(obj), *cells(obj, now)])


_TEMPLATE: Final = "Containers+,Images+"
_EVENT: Final = "Last Seen,Type,Reason,Object,Subobject+,Source+,Message,First Seen+,Count+,Name+"
_BUILTIN: Final[Mapping[tuple[str, str], Columns]] = {
    ("", "pods"): replace(
        _build("Ready,Status,Restarts,Age,IP+,Node+,Nominated Node+,Readiness Gates+", _pods),
        conditions=list_row_conditions,
    ),
    ("", "persistentvolumeclaims"): _build(
        "Status,Volume,Capacity,Access Modes,StorageClass,VolumeAttributesClass,Age,VolumeMode+",
        _claims,
    ),
    ("", "persistentvolumes"): _build(
        "Capacity,Access Modes,Reclaim Policy,Status,Claim,StorageClass,VolumeAttributesClass,"
        "Reason,Age,VolumeMode+",
        _volumes,
    ),
    ("", "nodes"): _build(
        "Status,Roles,Age,Version,Internal-IP+,External-IP+,OS-Image+,Kernel-Version+,"
        "Container-Runtime+",
        _nodes,
    ),
    ("", "services"): _build("Type,Cluster-IP,External-IP,Port(s),Age,Selector+", _services),
    ("", "secrets"): _build(
        "Type,Data,Age",
        lambda obj, now: [obj.get("type", ""), len(obj.get("data") or {}), _age(obj, now)],
    ),
    ("", "configmaps"): _build(
        "Data,Age",
        lambda obj, now: [
            len(obj.get("data") or {}) + len(obj.get("binaryData") or {}),
            _age(obj, now),
        ],
    ),
    ("", "namespaces"): _build(
        "Status,Age", lambda obj, now: [text_at(obj, "status", "phase"), _age(obj, now)]
    ),
    ("", "serviceaccounts"): _build("Age", lambda obj, now: [_age(obj, now)]),
    ("apps", "deployments"): _build(
        f"Ready,Up-to-date,Available,Age,{_TEMPLATE},Selector+", _deployments
    ),
    ("apps", "replicasets"): _build(
        f"#Desired,#Current,#Ready,Age,{_TEMPLATE},Selector+", _replica_sets
    ),
    ("apps", "statefulsets"): _build(f"Ready,Age,{_TEMPLATE}", _stateful_sets),
    ("autoscaling", "horizontalpodautoscalers"): _build(
        "Reference,Targets,MinPods,MaxPods,Replicas,Age", _autoscalers
    ),
    ("policy", "poddisruptionbudgets"): _build(
        "Min Available,Max Unavailable,#Allowed Disruptions,Age", _budgets
    ),
    ("coordination.k8s.io", "leases"): _build(
        "Holder,Age", lambda obj, now: [text_at(obj, "spec", "holderIdentity"), _age(obj, now)]
    ),
    ("networking.k8s.io", "networkpolicies"): _build(
        "Pod-Selector,Age",
        lambda obj, now: [
            _selector({"spec": {"selector": map_at(obj, "spec", "podSelector")}}),
            _age(obj, now),
        ],
    ),
    ("events.k8s.io", "events"): Columns(_define(_EVENT), _events),
    ("", "events"): Columns(_define(_EVENT), _events),
    ("storage.k8s.io", "storageclasses"): Columns(
        _define("Name,Provisioner,ReclaimPolicy,VolumeBindingMode,AllowVolumeExpansion,Age"),
        _classes,
    ),
    ("rbac.authorization.k8s.io", "rolebindings"): _build(
        "Role,Age,Users+,Groups+,ServiceAccounts+", _role_bindings
    ),
    ("rbac.authorization.k8s.io", "clusterrolebindings"): _build(
        "Role,Age,Users+,Groups+,ServiceAccounts+", _role_bindings
    ),
}
_PLAIN: Final = _build("@Created At", _date)
"""The columns of kinds without printers of their own."""

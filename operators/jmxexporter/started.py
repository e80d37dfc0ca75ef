"""The agent that the JVMs of a pod were started with, from an annotation of the pod. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Final

import orjson

from operators.jmxexporter.api.v1alpha1 import PrometheusJmxExporter

_LAST_PORT: Final = 65_535
_PATH_LIMIT: Final = 128


@dataclass(frozen=True, slots=True)
class Started:
    """The agent with which the JVMs of a pod started."""

    exporter: str
    containers: tuple[str, ...]
    port: int
    last_port: int
    path: str
    config: str

    @classmethod
    def of(cls, exporter: PrometheusJmxExporter, containers: Iterable[str]) -> Started:
        """Return the agent with which an exporter starts the JVMs of a new pod."""
        spec = exporter.spec
        first, last = spec.ports
        source = f"{spec.config.config_map_name}/{spec.config.config_map_key}"
        if spec.config.preset is not None:
            source = f"preset {spec.config.preset}"
        name = exporter.metadata.name
        return cls(name, tuple(containers), first, last, spec.path, source)

    @classmethod
    def parse(cls, text: str) -> Started | None:
        """Parse the annotation; None if it is not valid."""
        try:
            raw = orjson.loads(text)
            ports = int(raw["port"]), int(raw["last_port"])
            names = tuple(str(name) for name in raw["containers"])
            texts = [str(raw[name]) for name in ("path", "config")]
            # Anyone who may create pods can write the annotation. Because of one invalid value, the
            # API server would reject the whole status, including the endpoints of other pods.
            if not all(0 < port <= _LAST_PORT for port in ports) or len(texts[0]) > _PATH_LIMIT:
                return None
            return cls(str(raw["exporter"]), names, *ports, *texts)
        except (ValueError, KeyError, TypeError):
            return None

    def render(self) -> str:
        """Return the text of the annotation."""
        return json.dumps(asdict(self), separators=(",", ":"), sort_keys=True)

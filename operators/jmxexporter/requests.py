"""Requests to injectors. Pure."""

from __future__ import annotations

from libs.common.quantity import parse_quantity
from operators.jmxexporter.api.v1alpha1 import (
    ClientCertificates,
    Mode,
    PrometheusJmxExporter,
)
from operators.jmxexporter.config import Config
from operators.jmxexporter.injector.messages import Action, Request
from operators.jmxexporter.pods import Container, Pod


def build_request(
    exporter: PrometheusJmxExporter, config: Config, pod: Pod, container: Container
) -> Request:
    """Build the request for a container."""
    spec = exporter.spec
    first, last = spec.ports
    return Request(
        id=exporter.metadata.uid,
        action=Action.CHECK if spec.mode is Mode.DRY_RUN else Action.ENSURE,
        container_id=container.container_id,
        shared_processes=pod.shared_processes,
        port=first,
        last_port=last,
        path=spec.path,
        config_hash=config.hash,
        main_class=spec.main_class,
        exclude_main_class=spec.exclude_main_class,
        max_jvms=spec.max_jvms,
        timeout_seconds=spec.timeout_seconds,
        memory_bytes=int(parse_quantity(spec.min_free_memory)),
        memory_limit=container.memory_limit,
        tls_secret=spec.tls.secret_name if spec.tls else "",
        client_certificates=bool(
            spec.tls and spec.tls.client_certificates is ClientCertificates.REQUIRE
        ),
        login_secret=spec.basic_auth.secret_name if spec.basic_auth else "",
        generation=exporter.metadata.generation,
        restarts=container.restarts,
    )


def build_stop(exporter: PrometheusJmxExporter, pod: Pod, container: Container) -> Request:
    """Build the request that ends the endpoints of a container."""
    return Request(
        id=exporter.metadata.uid,
        action=Action.STOP,
        container_id=container.container_id,
        shared_processes=pod.shared_processes,
        timeout_seconds=exporter.spec.timeout_seconds,
        memory_bytes=int(parse_quantity(exporter.spec.min_free_memory)),
        memory_limit=container.memory_limit,
        generation=exporter.metadata.generation,
    )

"""Settings that every operator has, read from flags and environment variables.

An operator with settings of its own subclasses `CommonSettings`:

    class Settings(CommonSettings):
        model_config = operator_settings("podset")

Each field is then the flag `--max-concurrent-reconciles` and the environment variable
`PODSET_MAX_CONCURRENT_RECONCILES`; a flag wins over the variable. The docstring under the field is
its one description: in `--help`, in the chart's values and in the reference. The words are those of
controller-runtime where it has them.

`parse_settings` turns the command line of a process into settings.
"""

import re
from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, Field, ValidationInfo, field_validator, model_validator
from pydantic.config import JsonDict
from pydantic.fields import FieldInfo
from pydantic_settings import (
    BaseSettings,
    EnvSettingsSource,
    NoDecode,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)

from libs.common.labels import compile_selectors
from libs.common.settings.addresses import parse_bind_address

# A renewal that is sent must have time for one retry before the deadline; client-go's rule.
_JITTER = 1.2
_NAMESPACE = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_TUNING: JsonDict = {"tuning": True}
"""Marks a setting that tests and unusual clusters need: it works, but is not listed."""
_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")


def _split_commas(value: object) -> object:
    if isinstance(value, str):
        return tuple(part.strip() for part in value.split(",") if part.strip())
    return value


def _check_namespace(name: str) -> None:
    if not _NAMESPACE.fullmatch(name):
        raise ValueError(f"{name!r} is not the name of a namespace")


type CommaList = Annotated[tuple[str, ...], NoDecode, BeforeValidator(_split_commas)]
"""A list that is written as `a,b,c` in a flag or an environment variable."""


def operator_settings(operator_id: str) -> SettingsConfigDict:
    """Return the model configuration of an operator's settings.

    Args:
        operator_id: Id of the operator, such as `podset`; gives the prefix `PODSET_`.
    """
    return SettingsConfigDict(
        title=operator_id,
        env_prefix=f"{operator_id.upper()}_",
        extra="ignore",
        frozen=True,
        use_attribute_docstrings=True,
    )


def standard_environment(field: FieldInfo) -> tuple[str, ...]:
    """Return the variables without our prefix that give a field its value, best first."""
    extra = field.json_schema_extra
    names = extra.get("environment", ()) if isinstance(extra, dict) else ()
    return tuple(str(name) for name in names) if isinstance(names, list) else ()


class _StandardEnvironment(EnvSettingsSource):
    """Reads the variables that Kubernetes and OpenTelemetry define, such as `POD_NAMESPACE`."""

    def get_field_value(self, field: FieldInfo, field_name: str) -> tuple[object, str, bool]:
        for name in standard_environment(field):
            value = self.env_vars.get(name if self.case_sensitive else name.lower())
            if value:
                return value, name, False
        return None, field_name, False


class CommonSettings(BaseSettings):
    """Settings of the runtime, the same for every operator."""

    model_config = operator_settings("operator")

    kubeconfig: str = ""
    """kubeconfig is the path of a kubeconfig file; empty means $KUBECONFIG, the pod's service
    account or ~/.kube/config, whichever is found first."""

    context: str = ""
    """context is the kubeconfig context to use; empty means the current one."""

    watch_namespaces: CommaList = ()
    """watch_namespaces is a comma-separated list of the namespaces to watch; empty means the
    operator's own namespace, `*` means all."""

    watch_all_by_default: bool = Field(default=False, json_schema_extra=_TUNING)
    """watch_all_by_default makes an empty watch_namespaces mean all namespaces, in the way that the
    Operator Lifecycle Manager passes the namespaces of an OperatorGroup."""

    watch_namespace_selector: str = ""
    """watch_namespace_selector is a label selector, such as `tenant=yes`. The operator watches the
    namespaces that match it, including namespaces that are created later. Needs permission to get,
    list and watch namespaces. Cannot be combined with watch_namespaces."""

    watch_excluded_namespaces: CommaList = ()
    """watch_excluded_namespaces is a comma-separated list of namespaces that are not watched if all
    others are. The permissions of the operator include them nevertheless, because RBAC has no
    exceptions."""

    role_binding: str = ""
    """role_binding is the name of the RoleBinding that grants the operator its permissions in a
    watched namespace. The operator keeps a finalizer on it while objects in that namespace have one
    of its own, so that the namespace can be deleted. Empty disables this; it is not needed if the
    permissions come from a ClusterRoleBinding."""

    pod_namespace: str = Field(default="", json_schema_extra={"environment": ["POD_NAMESPACE"]})
    """pod_namespace is the namespace that the operator runs in and keeps its Lease in; empty means
    the namespace of the service account or of the kubeconfig context."""

    pod_name: str = Field(default="", json_schema_extra={"environment": ["POD_NAME"]})
    """pod_name is the name of the operator's pod, the readable part of its identity; empty means
    the host name."""

    max_concurrent_reconciles: int = Field(default=4, ge=1, le=1000)
    """max_concurrent_reconciles is the number of objects that a controller reconciles at a time."""

    reconcile_timeout_seconds: float = Field(
        default=300, gt=0, le=86_400, json_schema_extra=_TUNING
    )
    """reconcile_timeout_seconds is the time after which one reconcile is cancelled and retried."""

    resync_period_seconds: float = Field(default=36_000, ge=0, json_schema_extra=_TUNING)
    """resync_period_seconds is the mean time between two reconciles of an object that does not
    change; 0 disables the resync."""

    sweep_period_seconds: float = Field(default=600, ge=0)
    """sweep_period_seconds is the mean time between two comparisons of the cache with a list from
    the API, which find what a broken watch missed; 0 disables them."""

    cache_sync_timeout_seconds: float = Field(default=120, gt=0, json_schema_extra=_TUNING)
    """cache_sync_timeout_seconds is the time that the caches have to fill at the start; then the
    process exits."""

    backoff_base_seconds: float = Field(default=0.2, gt=0, json_schema_extra=_TUNING)
    """backoff_base_seconds is the delay before the first retry of an object whose reconcile failed;
    it doubles with each further failure."""

    backoff_max_seconds: float = Field(default=300, gt=0, json_schema_extra=_TUNING)
    """backoff_max_seconds is the longest delay between two retries of an object."""

    min_interval_seconds: float = Field(default=0, ge=0, le=3600, json_schema_extra=_TUNING)
    """min_interval_seconds is the minimum time between the starts of two reconciles of one object;
    0 means no limit."""

    max_requests_in_flight: int = Field(default=32, ge=1, le=10_000, json_schema_extra=_TUNING)
    """max_requests_in_flight is the number of API requests that may wait for a response at
    the same time."""

    request_timeout_seconds: float = Field(default=30, gt=0, le=3600, json_schema_extra=_TUNING)
    """request_timeout_seconds is the time after which an API request without a response fails."""

    leader_elect: bool = True
    """leader_elect enables leader election by a Lease. Without it, every replica reconciles, so run
    only one replica."""

    lease_name: str = Field(default="", validate_default=True, max_length=253)
    """lease_name is the name of the Lease for the leader election; empty means the operator's
    id."""

    lease_duration_seconds: int = Field(default=15, ge=1, le=3600)
    """lease_duration_seconds is the time that a standby waits after the last renewal it saw before
    it takes over."""

    renew_deadline_seconds: float = Field(default=10, gt=0, json_schema_extra=_TUNING)
    """renew_deadline_seconds is the time that the leader tries to renew before it stops working;
    less than lease_duration_seconds."""

    retry_period_seconds: float = Field(default=2, gt=0, json_schema_extra=_TUNING)
    """retry_period_seconds is the time between two attempts to acquire or renew the Lease; less
    than renew_deadline_seconds / 1.2."""

    drain_timeout_seconds: float = Field(default=20, ge=0)
    """drain_timeout_seconds is the time that running reconciles have to end after SIGTERM; less
    than the pod's terminationGracePeriodSeconds."""

    metrics_bind_address: str = ":8080"
    """metrics_bind_address is the address that serves /metrics, such as `:8080` or
    `127.0.0.1:8080`; `0` disables it."""

    metrics_secure: bool = False
    """metrics_secure serves /metrics over HTTPS, and only to clients with a bearer token whose
    user may `get` the non-resource URL /metrics. Needs permission to create tokenreviews and
    subjectaccessreviews."""

    metrics_cert_dir: str = ""
    """metrics_cert_dir is the directory with tls.crt and tls.key for metrics_secure, for example a
    mounted Secret; renewed files are used without a restart. Empty means a self-signed
    certificate."""

    health_probe_bind_address: str = ":8081"
    """health_probe_bind_address is the address that serves /healthz and /readyz; `0` disables
    it."""

    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """log_level is the minimum severity of log lines."""

    log_format: Literal["json", "console"] = "json"
    """log_format is `json` for one JSON object per line, or `console` for people."""

    otlp_endpoint: str = Field(
        default="", json_schema_extra={"environment": ["OTEL_EXPORTER_OTLP_ENDPOINT"]}
    )
    """otlp_endpoint is the base URL of an OTLP/HTTP receiver for traces, such as
    `http://collector:4318`; empty disables tracing."""

    trace_sample_ratio: float = Field(default=1.0, ge=0, le=1)
    """trace_sample_ratio is the share of the reconciles that are traced, from 0 to 1."""

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Read flags first, then our variables, then the standard ones; no files."""
        return init_settings, env_settings, _StandardEnvironment(settings_cls)

    @field_validator("log_level", "log_format", mode="before")
    @classmethod
    def _lower(cls, value: object) -> object:
        return value.lower() if isinstance(value, str) else value

    @field_validator("otlp_endpoint")
    @classmethod
    def _check_endpoint(cls, value: str) -> str:
        if value and not value.startswith(("http://", "https://")):
            raise ValueError("must be a URL that begins with http:// or https://")
        return value.rstrip("/")

    @field_validator("metrics_bind_address", "health_probe_bind_address")
    @classmethod
    def _check_bind_address(cls, value: str) -> str:
        parse_bind_address(value)
        return value

    @field_validator("watch_namespaces", "watch_excluded_namespaces")
    @classmethod
    def _check_watch_namespaces(
        cls, value: tuple[str, ...], info: ValidationInfo
    ) -> tuple[str, ...]:
        for name in value:
            if name != "*" or info.field_name != "watch_namespaces":
                _check_namespace(name)
        return value

    @field_validator("pod_namespace")
    @classmethod
    def _check_pod_namespace(cls, value: str) -> str:
        if value:
            _check_namespace(value)
        return value

    @field_validator("lease_name")
    @classmethod
    def _check_lease_name(cls, value: str) -> str:
        if value and not _NAME.fullmatch(value):
            raise ValueError("must be an object name: lower-case letters, digits, '-' and '.'")
        return value or cls.operator_id()

    @model_validator(mode="after")
    def _check_election(self) -> Self:
        if self.lease_duration_seconds <= self.renew_deadline_seconds:
            raise ValueError(
                f"lease_duration_seconds ({self.lease_duration_seconds:g}) must be greater than "
                f"renew_deadline_seconds ({self.renew_deadline_seconds:g})"
            )
        if self.renew_deadline_seconds <= self.retry_period_seconds * _JITTER:
            raise ValueError(
                f"renew_deadline_seconds ({self.renew_deadline_seconds:g}) must be greater than "
                f"{_JITTER} x retry_period_seconds ({self.retry_period_seconds:g})"
            )
        return self

    @field_validator("watch_namespace_selector")
    @classmethod
    def _check_selector(cls, value: str) -> str:
        compile_selectors(value)
        return value

    @model_validator(mode="after")
    def _check_metrics(self) -> Self:
        if self.metrics_cert_dir and not self.metrics_secure:
            raise ValueError("metrics_cert_dir needs metrics_secure")
        probes = parse_bind_address(self.health_probe_bind_address)
        if self.metrics_secure and probes and probes.port:
            metrics = parse_bind_address(self.metrics_bind_address)
            if metrics == probes:
                raise ValueError(
                    "metrics_bind_address must differ from health_probe_bind_address with "
                    "metrics_secure: the kubelet sends no token"
                )
        return self

    @model_validator(mode="after")
    def _check_watched(self) -> Self:
        if self.watch_namespace_selector and self.watch_namespaces:
            raise ValueError("watch_namespace_selector and watch_namespaces are mutually exclusive")
        if self.watch_excluded_namespaces and not self.watches_all_namespaces:
            raise ValueError(
                "watch_excluded_namespaces has an effect only if watch_namespaces is *; with "
                "watch_namespace_selector, use kubernetes.io/metadata.name notin (a,b)"
            )
        return self

    @model_validator(mode="after")
    def _check_backoff(self) -> Self:
        if self.backoff_max_seconds < self.backoff_base_seconds:
            raise ValueError(
                f"backoff_max_seconds ({self.backoff_max_seconds:g}) must not be less than "
                f"backoff_base_seconds ({self.backoff_base_seconds:g})"
            )
        return self

    @classmethod
    def operator_id(cls) -> str:
        """Return the id of the operator, such as `podset`."""
        return cls.model_config.get("title") or "operator"

    @classmethod
    def environment_prefix(cls) -> str:
        """Return what the environment variables of the operator begin with, such as `PODSET_`."""
        return cls.model_config.get("env_prefix") or ""

    @property
    def watches_all_namespaces(self) -> bool:
        """Whether the operator watches the whole cluster."""
        if self.watch_namespaces or self.watch_namespace_selector:
            return "*" in self.watch_namespaces
        return self.watch_all_by_default

    @property
    def excluded_fields(self) -> str:
        """Field selector of the objects in namespaces that are not excluded; empty for all."""
        names = sorted(set(self.watch_excluded_namespaces))
        return ",".join(f"metadata.namespace!={name}" for name in names)

    def namespaces(self, own_namespace: str = "") -> tuple[str, ...]:
        """Return the namespaces to watch, sorted; empty means all.

        Args:
            own_namespace: Used where pod_namespace is empty, such as the namespace of a kubeconfig.
        """
        if self.watches_all_namespaces:
            return ()
        own = self.pod_namespace or own_namespace or "default"
        return tuple(sorted(set(self.watch_namespaces))) or (own,)


def build_settings(operator_id: str) -> type[CommonSettings]:
    """Build the settings of an operator that has only the common ones.

    Args:
        operator_id: Id of the operator, which gives the prefix of environment variables.
    """

    class Settings(CommonSettings):
        """Settings that every operator has."""

        model_config = operator_settings(operator_id)

    return Settings

"""Conditions of a PrometheusJmxExporter, and all reasons, including those of injectors and guards.

Injectors import this module next to the application, so it must stay small.
"""

from __future__ import annotations

from enum import StrEnum


class ConditionType(StrEnum):
    """Conditions of a PrometheusJmxExporter."""

    READY = "Ready"
    """Ready is True when each JVM of the selected pods serves its metrics."""
    CONFIG_VALID = "ConfigValid"
    """ConfigValid is True when the configuration can be used."""
    CONFLICTING = "Conflicting"
    """Conflicting is True when an older PrometheusJmxExporter selects some of the pods; the older
    one instruments them."""
    DEGRADED = "Degraded"
    """Degraded is True when JVMs of two pods, or of the only one, ended during an injection. No
    other JVM is instrumented until the spec changes, the containers also end without an injection,
    or the annotation banzaicloud.com/jmx-resume is set to a later time."""


class Reason(StrEnum):
    """Reasons of the conditions, failures and events of a PrometheusJmxExporter."""

    ALL_SERVING = "AllServing"
    """AllServing means that each JVM of the selected pods serves its metrics."""
    NO_PODS = "NoPods"
    """NoPods means that spec.labelSelector selects no running pod."""
    INJECTING = "Injecting"
    """Injecting means that some JVMs are not instrumented yet; status.failures says what they wait
    for."""
    TARGETS_FAILED = "TargetsFailed"
    """TargetsFailed means that some containers have no endpoint; status.failures says why."""
    DRY_RUN = "DryRun"
    """DryRun means that spec.mode is DryRun: status lists the JVMs that would be instrumented."""
    PAUSED = "Paused"
    """Paused means that spec.mode is Paused: the operator changes nothing."""
    CONFIG_ACCEPTED = "ConfigAccepted"
    """ConfigAccepted means that the configuration can be used."""
    CONFIG_MISSING = "ConfigMissing"
    """ConfigMissing means that the ConfigMap or its key does not exist."""
    CONFIG_INVALID = "ConfigInvalid"
    """ConfigInvalid means that the configuration cannot be used; the message says why."""
    NO_CONFLICT = "NoConflict"
    """NoConflict means that no other PrometheusJmxExporter selects the pods."""
    OLDER_EXPORTER = "OlderExporter"
    """OlderExporter means that an older PrometheusJmxExporter selects the pod and instruments
    it."""
    HEALTHY = "Healthy"
    """Healthy means that no JVM ended during an injection."""
    STARTED = "Started"
    """Started means that an injector was added to a pod as an ephemeral container."""
    ANNOTATED = "Annotated"
    """Annotated means that annotations for Prometheus were added to a pod or removed."""
    REFUSED = "Refused"
    """Refused means that the API server refused an ephemeral container or an annotation; the
    message contains its error. The operator tries again with growing pauses."""
    STATIC_POD = "StaticPod"
    """StaticPod means that the kubelet runs the pod from a file, and the API server accepts no
    injectors for it; add the exporter to the file as -javaagent, or opt the pod out."""
    CONTAINER_UNSTABLE = "ContainerUnstable"
    """ContainerUnstable means that the container ended during an injection, and also without one;
    fix the container and replace the pod."""
    SCRAPE_FAILED = "ScrapeFailed"
    """ScrapeFailed means that the last scrape of the JVM failed or was incomplete; the message
    contains the cause."""
    POD_NOT_READY = "PodNotReady"
    """PodNotReady means that the pod is not ready for spec.minReadySeconds yet."""
    POD_BUSY = "PodBusy"
    """PodBusy means that the injection waits for another container of the pod."""
    WAITING = "Waiting"
    """Waiting means that spec.maxConcurrent injectors are running, or a retry is not due yet."""
    STARTING = "Starting"
    """Starting means that the injector is not running yet; the message says what it waits for."""
    RUNNING = "Running"
    """Running means that the injector is running."""
    UPDATING = "Updating"
    """Updating means that the operator is sending the configuration to the JVM."""
    NOT_VERIFIED = "NotVerified"
    """NotVerified means that a JVM that was started with the exporter does not respond to the
    operator, or that another JVM no longer does, so it is unknown whether it serves metrics."""
    NO_REPORT = "NoReport"
    """NoReport means that the injector ended without a report."""
    BUDGET_EXHAUSTED = "EphemeralContainerBudgetExhausted"
    """EphemeralContainerBudgetExhausted means that the pod has had spec.maxEphemeralContainers
    injectors; they cannot be removed, so only a new pod gets more."""
    FOREIGN_ANNOTATIONS = "ForeignAnnotations"
    """ForeignAnnotations means that the pod has annotations for Prometheus that the operator did
    not add; it does not change them."""
    STOPPING = "Stopping"
    """Stopping means that endpoints are being stopped."""
    RESTART_REQUIRED = "RestartRequired"
    """RestartRequired means that the JVM was started with another port, path or ConfigMap than the
    spec names now. Recreate the pod to apply the change."""
    MONITOR_UNAVAILABLE = "MonitorUnavailable"
    """MonitorUnavailable means that spec.service.monitor or spec.podMonitor is set and the cluster
    does not serve that kind."""
    PUBLISHED = "Published"
    """Published means that the Service, its EndpointSlices or a monitor was changed."""
    INVALID_SPEC = "InvalidSpec"
    """InvalidSpec means that the spec cannot be read; the message names the field."""
    NO_JVM_FOUND = "NoJvmFound"
    """NoJvmFound means that the container runs no JVM."""
    ALREADY_INSTRUMENTED = "AlreadyInstrumented"
    """AlreadyInstrumented means that the JVM has a JMX exporter that the operator did not load."""
    ATTACH_DISABLED = "AttachDisabled"
    """AttachDisabled means that the JVM runs with -XX:+DisableAttachMechanism."""
    DYNAMIC_AGENTS_DISABLED = "DynamicAgentLoadingDisabled"
    """DynamicAgentLoadingDisabled means that the JVM loads no agents; start it with
    -XX:+EnableDynamicAgentLoading."""
    SECURITY_MANAGER = "SecurityManagerPresent"
    """SecurityManagerPresent means that a SecurityManager would stop the endpoint."""
    TMP_NOT_WRITABLE = "TmpNotWritable"
    """TmpNotWritable means that /tmp, in which a JVM creates its attach socket, is not writable;
    mount an emptyDir."""
    NO_WRITABLE_PATH = "NoWritablePath"
    """NoWritablePath means that the container has no writable directory for the agent."""
    PORT_IN_USE = "PortInUse"
    """PortInUse means that each port from spec.port to spec.lastPort is in use."""
    CONFIG_CHANGED = "ConfigChanged"
    """ConfigChanged means that the ConfigMap changed during the injection; the operator tries
    again."""
    UID_MISMATCH = "UidMismatch"
    """UidMismatch means that the JVM runs as another user than the injector; the operator tries
    again."""
    PTRACE_DENIED = "PtraceDenied"
    """PtraceDenied means that the kernel does not let the injector inspect the JVM."""
    MISSING_MODULES = "MissingModules"
    """MissingModules means that the Java runtime lacks modules that the exporter needs."""
    UNSUPPORTED_JVM = "UnsupportedJvm"
    """UnsupportedJvm means that the JVM is not HotSpot."""
    NOT_READY = "NotReady"
    """NotReady means that the JVM does not handle signals yet; the operator tries again."""
    TOO_LITTLE_MEMORY = "TooLittleMemory"
    """TooLittleMemory means that the container has less free memory than spec.minFreeMemory, or the
    JVM has less metaspace than the exporter needs."""
    TOO_MANY_JVMS = "TooManyJvms"
    """TooManyJvms means that the container runs more JVMs than spec.maxJvms; the others are not
    served."""
    INJECTOR_NOT_STARTED = "InjectorNotStarted"
    """InjectorNotStarted means that an injector did not start in time, for example because the node
    cannot pull its image. It does nothing if it starts later."""
    SHARED_TMP = "SharedTmp"
    """SharedTmp means that another container of the pod mounts the volume that is /tmp of this one,
    or that the volume is a hostPath, so that others could replace what the JVM loads; mount an
    emptyDir of its own there."""
    HOST_NETWORK = "HostNetwork"
    """HostNetwork means that the pod uses the network of its node, so anyone who can reach the node
    could read the metrics; set spec.hostNetwork to Allow to serve it anyway."""
    FOREIGN_SOCKET = "ForeignSocket"
    """ForeignSocket means that a socket in /tmp has the name of the JVM's attach socket but belongs
    to another process."""
    ATTACH_REFUSED = "AttachRefused"
    """AttachRefused means that the JVM refused the agent; the message contains its error."""
    AGENT_ERROR = "AgentError"
    """AgentError means that the agent failed inside the JVM, which continues without it."""
    NOT_SERVING = "NotServing"
    """NotServing means that the endpoint does not serve the loaded configuration."""
    JVM_TERMINATED = "JvmTerminated"
    """JvmTerminated means that the JVM ended during an injection."""
    SECRET_MISSING = "SecretMissing"  # noqa: S105 - a reason.
    """SecretMissing means that a Secret of spec.tls or spec.basicAuth does not exist, or lacks a
    key."""
    TLS_INVALID = "TlsInvalid"
    """TlsInvalid means that the certificate or the key of spec.tls cannot be used."""
    TIMEOUT = "Timeout"
    """Timeout means that the JVM did not respond in time."""

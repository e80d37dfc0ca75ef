"""The checks of an injector that run before its other modules are loaded.

The kernel charges the memory of an injector to the pod: 3 MiB for the interpreter, 16 MiB with the
modules of the injector. If a pod near its limit lacks this memory, the kernel kills the largest
process, which is the JVM. This module therefore imports only what the interpreter loads anyway: no
`typing`, no `json`, not even `__future__`. The rest of the injector is imported only if the pod has
enough memory for it.
"""

import os

TYPE_CHECKING = False
"""Defined here, because importing it from `typing` would cost memory."""
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

PRECHECK_VARIABLE = "JMX_PRECHECK"
"""Environment variable with the inputs of these checks: words of the form name=value."""
INJECTOR_BYTES = 24 << 20
"""Memory that must be free for an injector: 1.5 times the memory that it uses."""

_UNLIMITED = 1 << 60
"""Higher values mean no limit: version 1 of control groups then shows a number near 2^63."""
_LIBRARIES = (b"/libjvm.so", b"/libj9vm")
_VERSIONS = (
    ("sys/fs/cgroup", "memory.max", "memory.current", "inactive_file"),
    (
        "sys/fs/cgroup/memory",
        "memory.limit_in_bytes",
        "memory.usage_in_bytes",
        "total_inactive_file",
    ),
)
"""The files of each version of control groups, as a container sees them."""


def render_precheck(need: int, limit: int, container_id: str) -> str:
    """Return the value of the environment variable.

    Args:
        need: Bytes that the container must have free for the injector.
        limit: Memory limit in the spec of the container; 0 for none.
        container_id: Id of the container if the containers of the pod share a process namespace;
            empty if the injector sees only processes of its target container.
    """
    return f"need={need} limit={limit} container={container_id}"


def volunteer_for_oom_killer() -> None:
    """Make the kernel kill this process before the application if the pod runs out of memory.

    The kubelet gives all containers of a Guaranteed pod the same score, so the kernel would choose
    the larger process, which is the JVM. Any process may raise its own score. This does not help
    pods whose containers have a score near 1000 already: they need the other checks.
    """
    try:
        with open("/proc/self/oom_score_adj", "w") as file:
            file.write("1000")
    except OSError:
        return  # The other checks do not depend on it.


def find_refusal(environ: "Mapping[str, str]", proc: str = "/proc") -> str:
    """Return the report if the injector finds no JVM or too little memory; empty if neither."""
    words = environ.get(PRECHECK_VARIABLE, "").split()
    asked = dict(word.split("=", 1) for word in words)
    processes = list_processes(proc, asked.get("container", ""))
    found = next((each for each in processes if may_be_jvm(each)), None)
    if found is None:
        return _render("NoJvmFound", "no process in this container is a JVM")
    need = int(asked.get("need", INJECTOR_BYTES))
    free = read_free_memory(found, int(asked.get("limit", "0")), processes)
    if free is None or free >= need:
        return ""
    return _render(
        "TooLittleMemory",
        f"the container has {free >> 20} MiB left below its memory limit, and the injector"
        f" needs {need >> 20} MiB; raise the limit",
    )


def list_processes(proc: str, container_id: str = "") -> "list[str]":
    """List the directories of all processes except this one, in the order of their ids.

    Args:
        proc: Directory that shows the processes.
        container_id: Part of the name of the control groups of the processes; empty for all.
    """
    pids = sorted(int(name) for name in os.listdir(proc) if name.isdecimal())
    found = [f"{proc}/{pid}" for pid in pids if pid != os.getpid()]
    return [each for each in found if not container_id or _belongs_to(each, container_id)]


def _belongs_to(process: str, container_id: str) -> bool:
    try:
        return container_id.encode() in _read(f"{process}/cgroup")
    except OSError:
        return False


def may_be_jvm(process: str) -> bool:
    """Return whether a process is a JVM, or is named java if its memory map cannot be read."""
    try:
        with open(f"{process}/maps", "rb") as lines:
            return any(library in line for line in lines for library in _LIBRARIES)
    except OSError:
        pass  # The process has another user, or has ended.
    try:
        command = _read(f"{process}/cmdline").partition(b"\0")[0]
        return b"java" in (_read(f"{process}/comm").strip(), command.rpartition(b"/")[2])
    except OSError:
        return False


def read_free_memory(process: str, limit: int = 0, members: "Sequence[str]" = ()) -> int | None:
    """Return the bytes that the container of a process has free below its limit.

    Pages of files that were not used recently count as free, as they do for the kubelet: the kernel
    drops them before it kills a process.

    Args:
        process: Directory of the process.
        limit: Limit in the spec of the container; 0 for none. Used if the control groups cannot be
            read (another user) or do not show it (privileged containers, or a limit of the whole
            pod).
        members: Directories of the processes of the container.

    Returns:
        The bytes; None if there is no limit.
    """
    for directory, *names in _VERSIONS:
        try:
            free = _read_group(f"{process}/root/{directory}", *names)
        except (OSError, ValueError):
            continue
        if free is not None:
            return free
    return max(0, limit - sum(_read_usage(each) for each in members)) if limit else None


def _read_group(directory: str, limit_file: str, usage_file: str, cache: str) -> int | None:
    text = _read(f"{directory}/{limit_file}").strip()
    stat = dict(line.split(maxsplit=1) for line in _read(f"{directory}/memory.stat").splitlines())
    limit = _UNLIMITED if text == b"max" else int(text)
    # Version 1 shows the limit of the pod here as well, and it may be lower.
    limit = min(limit, int(stat.get(b"hierarchical_memory_limit", limit)))
    if limit >= _UNLIMITED:
        return None
    usage = int(_read(f"{directory}/{usage_file}"))
    return max(0, limit - usage + int(stat.get(cache.encode(), 0)))


def _read_usage(process: str) -> int:
    """Return the memory of a process without pages of files; any user may read these values."""
    try:
        lines = _read(f"{process}/status").splitlines()
    except OSError:
        return 0
    kinds = (b"RssAnon:", b"RssShmem:")
    return sum(int(line.split()[1]) << 10 for line in lines if line.startswith(kinds))


def _read(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def _render(reason: str, message: str) -> str:
    """Return a report as `messages.Report` renders it; the texts need no escapes."""
    return f'{{"jvms":[],"reason":"{reason}","message":"{message}"}}'

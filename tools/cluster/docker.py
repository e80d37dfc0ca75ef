"""A working docker: the user's own, or a private daemon if one can be started.

The private daemon keeps its images, containers and socket under the cache, leaves the firewall of
the machine alone and ends with `./dev down --all`.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tools.cluster import commands, debian
from tools.cluster.cache import Cache, digest_of
from tools.cluster.capabilities import lacks_sys_resource
from tools.cluster.errors import CommandFailed, ToolError
from tools.cluster.progress import Progress

_START_SECONDS: Final = 60.0
_STOP_SECONDS: Final = 30.0
_PACKAGES: Final = ("docker.io", "containerd", "runc")
_RUNC_WRAPPER: Final = Path(__file__).parent / "runc-without-sys-resource"

_NO_DOCKER: Final = (
    "Docker does not respond: start it (https://docs.docker.com/engine/install), set DOCKER_HOST,"
    " or run ./dev as root on Debian, so that it installs and starts docker"
)


@dataclass(frozen=True, slots=True)
class Docker:
    """A client of one docker daemon; with `host` None, docker chooses the daemon."""

    host: str | None = None

    def environment(self) -> dict[str, str]:
        """Return what kind and docker need in their environment to reach this daemon."""
        # Debian's docker has no buildx, without which BuildKit cannot be used.
        return {"DOCKER_BUILDKIT": "0", **({"DOCKER_HOST": self.host} if self.host else {})}

    def answers(self) -> bool:
        """Return whether the daemon responds."""
        command = ["docker", "version", "--format", "{{.Server.Version}}"]
        return commands.succeeds(command, env=self.environment())

    def read(self, *arguments: str | Path, stdin: str | None = None, seconds: float = 60.0) -> str:
        """Return what a short docker command prints."""
        command = ["docker", *arguments]
        return commands.read(command, env=self.environment(), stdin=stdin, seconds=seconds)

    def has_image(self, image: str) -> bool:
        """Return whether the daemon has the image."""
        return commands.succeeds(["docker", "image", "inspect", image], env=self.environment())

    def uses_cgroup_v1(self) -> bool:
        """Return whether containers use cgroups v1."""
        return self.read("info", "--format", "{{.CgroupVersion}}").strip() == "1"


def find_docker(cache: Cache | None = None) -> Docker | None:
    """Return a docker that responds now, without starting anything."""
    if shutil.which("docker") is None:
        return None
    own = _own_docker(cache or Cache())
    candidates = [Docker()] if os.environ.get("DOCKER_HOST") else [Docker(), own]
    return next((docker for docker in candidates if docker.answers()), None)


def ensure_docker(progress: Progress, cache: Cache | None = None) -> Docker:
    """Return a docker that answers, installed and started when that is possible.

    Raises:
        ToolError: There is none and none can be started here; the message says how to get one.
    """
    cache = cache or Cache()
    if docker := find_docker(cache):
        return docker
    if os.environ.get("DOCKER_HOST"):
        raise ToolError(
            f"DOCKER_HOST={os.environ['DOCKER_HOST']} does not respond: start docker or unset it"
        )
    if not debian.is_debian_root():
        raise ToolError(f"{_NO_DOCKER}{_explain_no_response()}")
    with cache.lock("docker"):
        debian.install_packages(_PACKAGES, progress)
        # If there is a service manager, the installation has just started docker.
        if docker := find_docker(cache):
            return docker
        return _start(progress, cache)


def _explain_no_response() -> str:
    """Return docker's own message why it does not respond: not running, or no permission."""
    if shutil.which("docker") is None:
        return ""
    try:
        Docker().read("version", "--format", "{{.Server.Version}}", seconds=20.0)
    except CommandFailed as err:
        words = err.output.strip().splitlines() or [""]
        return f" ({words[-1]})"
    except ToolError as err:
        return f" ({err})"
    return ""


def own_daemon_pid(cache: Cache | None = None) -> int | None:
    """Return the process id of the private daemon, or None when it does not run."""
    cache = cache or Cache()
    try:
        pid = int((_home(cache) / "docker.pid").read_text())
        words = Path(f"/proc/{pid}/cmdline").read_text().split("\0")
    except (OSError, ValueError):
        return None
    # The number may belong to another process by now.
    return pid if str(_home(cache) / "data") in words else None


def stop_docker(cache: Cache | None = None) -> bool:
    """Stop the private daemon and its containers; return whether it was running.

    Raises:
        ToolError: The daemon does not exit.
    """
    cache = cache or Cache()
    pid = own_daemon_pid(cache)
    if pid is None:
        return False
    os.kill(pid, signal.SIGTERM)
    deadline = time.monotonic() + _STOP_SECONDS
    while own_daemon_pid(cache) is not None:
        if time.monotonic() > deadline:
            raise ToolError(
                f"dockerd (process {pid}) does not exit: see {_home(cache)}/dockerd.log"
            )
        time.sleep(0.1)
    return True


def build_daemon_command(home: Path, runtime: Path, wrapper: Path | None) -> list[str]:
    """Return the command line of a private daemon.

    Args:
        home: Directory of persistent data.
        runtime: Directory of sockets and temporary state.
        wrapper: The runc to use in place of the stock one.
    """
    command = ["dockerd", "--data-root", home / "data", "--exec-root", runtime]
    command += ["--pidfile", home / "docker.pid", "--host", f"unix://{home / 'docker.sock'}"]
    # The firewall belongs to the machine; published ports go through docker's user-land proxy.
    command += ["--iptables=false", "--ip6tables=false", "--ip-masq=false"]
    command += ["--oom-score-adjust", "0", "--storage-driver", "overlay2"]
    command += ["--bip", "10.250.0.1/24", "--default-address-pool", "base=10.251.0.0/16,size=24"]
    if wrapper:
        command += ["--add-runtime", f"capable={wrapper}", "--default-runtime", "capable"]
    return [str(word) for word in command]


def place_wrapper(home: Path) -> Path:
    """Copy the wrapper of runc into a directory, and return the copy.

    The daemon runs it for each container, also after the checkout that started the daemon is gone.
    """
    copy = home / _RUNC_WRAPPER.name
    # Renamed into place, because a shell may be reading the old one.
    fresh = copy.with_suffix(".new")
    shutil.copyfile(_RUNC_WRAPPER, fresh)
    fresh.chmod(0o755)
    return fresh.replace(copy)


def _start(progress: Progress, cache: Cache) -> Docker:
    home = _home(cache)
    docker = _own_docker(cache)
    # A socket path may have 107 bytes; state under /run is gone after a reboot, as it must be.
    runtime = Path("/run/slipway") / digest_of(str(home))
    runtime.mkdir(parents=True, exist_ok=True)
    (home / "docker.pid").unlink(missing_ok=True)
    wrapper = place_wrapper(home) if lacks_sys_resource() else None
    with progress.step("Private docker daemon", "a few seconds"):
        with (home / "dockerd.log").open("ab") as log:
            process = subprocess.Popen(
                build_daemon_command(home, runtime, wrapper),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        _wait_for_start(docker, process, home / "dockerd.log")
    return docker


def _wait_for_start(docker: Docker, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while not docker.answers():
        if process.poll() is not None or time.monotonic() > deadline:
            tail = "\n".join(log.read_text(errors="replace").splitlines()[-3:])
            raise ToolError(f"dockerd did not start, see {log}\n{tail}")
        time.sleep(0.2)


def _home(cache: Cache) -> Path:
    home = cache.path("docker", "data").parent
    if len(str(home)) > 90:
        raise ToolError(f"{home}: path too long for a socket; set SLIPWAY_CACHE to a shorter path")
    return home


def _own_docker(cache: Cache) -> Docker:
    return Docker(f"unix://{_home(cache) / 'docker.sock'}")


def list_containers(docker: Docker, label: str) -> list[dict[str, str]]:
    """Return the containers with a label, as docker describes them line by line."""
    text = docker.read("ps", "--all", "--filter", f"label={label}", "--format", "{{json .}}")
    return [json.loads(line) for line in text.splitlines()]

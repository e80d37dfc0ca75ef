"""Free memory of a container, from the files that each version of control groups shows.

The files have the form that the kernel documents: Documentation/admin-guide/cgroup-v2.rst (`max`
for no limit, memory.stat as pairs of name and bytes) and cgroup-v1/memory.rst.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from operators.jmxexporter.injector.messages import Action
from operators.jmxexporter.injector.precheck import read_free_memory
from operators.jmxexporter.injector.preflight import check_memory
from operators.jmxexporter.injector.processes import Process
from operators.jmxexporter.jvms import build_request
from operators.jmxexporter.reasons import Reason

MIB = 1 << 20
V2 = {
    "cgroup.controllers": "cpuset cpu io memory hugetlb pids rdma misc\n",
    "cgroup.type": "domain\n",
    "memory.current": f"{250 * MIB}\n",
    "memory.high": "max\n",
    "memory.max": f"{256 * MIB}\n",
    "memory.stat": (
        f"anon {180 * MIB}\n"
        f"file {62 * MIB}\n"
        f"kernel {8 * MIB}\n"
        "kernel_stack 1654784\n"
        "pagetables 2715648\n"
        "sec_pagetables 0\n"
        "percpu 1728\n"
        "sock 4096\n"
        "shmem 0\n"
        "file_mapped 34603008\n"
        "file_dirty 0\n"
        "inactive_anon 188739584\n"
        "active_anon 8192\n"
        f"inactive_file {40 * MIB}\n"
        f"active_file {22 * MIB}\n"
        "unevictable 0\n"
        "workingset_refault_anon 0\n"
        "pgfault 71424\n"
    ),
    "memory.swap.current": "0\n",
    "memory.swap.max": "max\n",
}
"""A container of 256 MiB that uses 250, of which 40 are files that nobody has read lately."""
V1 = {
    "memory/memory.limit_in_bytes": f"{256 * MIB}\n",
    "memory/memory.usage_in_bytes": f"{250 * MIB}\n",
    "memory/memory.stat": (
        f"cache {62 * MIB}\n"
        f"rss {180 * MIB}\n"
        "inactive_file 0\n"
        f"hierarchical_memory_limit {256 * MIB}\n"
        f"hierarchical_memsw_limit {256 * MIB}\n"
        f"total_cache {62 * MIB}\n"
        f"total_inactive_file {40 * MIB}\n"
        f"total_active_file {22 * MIB}\n"
    ),
}
"""The same container in version 1, where the totals include groups below it."""
UNLIMITED_V1 = "9223372036854771712\n"
"""No limit in version 1: the highest number that is a multiple of the page size."""


def show(directory: Path, files: Mapping[str, str]) -> Process:
    """Show control groups to a process as its container has them mounted."""
    mount = directory / "7/root/sys/fs/cgroup"
    mount.mkdir(parents=True)
    for name, text in files.items():
        (mount / name).parent.mkdir(exist_ok=True)
        (mount / name).write_text(text)
    return Process(7, directory)


def edit_stat(files: Mapping[str, str], old: str, new: str) -> dict[str, str]:
    """Return the files with another text in memory.stat."""
    name = next(name for name in files if name.endswith("memory.stat"))
    assert old in files[name], "the test changes nothing"
    return {**files, name: files[name].replace(old, new)}


@pytest.mark.parametrize(
    ("files", "free"),
    [
        pytest.param(V2, 46 * MIB, id="version 2"),
        pytest.param({**V2, "memory.max": "max\n"}, None, id="version 2 without a limit"),
        pytest.param(
            edit_stat(V2, f"inactive_file {40 * MIB}", "inactive_file 0"),
            6 * MIB,
            id="version 2, all files in use",
        ),
        pytest.param(
            {**V2, "memory.max": f"{128 * MIB}\n"}, 0, id="version 2, limit lowered below the usage"
        ),
        pytest.param(V1, 46 * MIB, id="version 1"),
        pytest.param(
            edit_stat(V1, f"memory_limit {256 * MIB}", f"memory_limit {252 * MIB}"),
            42 * MIB,
            id="version 1, limit of the pod is lower",
        ),
        pytest.param(
            {
                **edit_stat(V1, f"_limit {256 * MIB}\n", f"_limit {UNLIMITED_V1}"),
                "memory/memory.limit_in_bytes": UNLIMITED_V1,
            },
            None,
            id="version 1 without a limit",
        ),
        # A hybrid host has both; memory is then where its files are.
        pytest.param({**V1, "unified/cgroup.controllers": "\n"}, 46 * MIB, id="hybrid"),
        # The root of version 2, which privileged containers see, has no file of a limit.
        pytest.param(
            {name: V2[name] for name in ("cgroup.controllers", "memory.stat")}, None, id="root"
        ),
        pytest.param({**V2, "memory.current": ""}, None, id="unreadable number"),
        pytest.param({}, None, id="nothing mounted"),
    ],
)
def test_free_memory_is_what_the_kernel_would_still_give(
    tmp_path: Path, files: Mapping[str, str], free: int | None
) -> None:
    assert read_free_memory(str(show(tmp_path, files).path)) == free


@pytest.mark.parametrize("files", [V2, V1], ids=["version 2", "version 1"])
def test_container_near_its_limit_is_refused_and_both_numbers_are_named(
    tmp_path: Path, files: Mapping[str, str]
) -> None:
    process = show(tmp_path, files)

    refusal = check_memory(process, build_request(Action.ENSURE, memory_bytes=47 * MIB))

    assert refusal is not None
    assert refusal.reason is Reason.TOO_LITTLE_MEMORY
    assert "46 MiB left" in refusal.message and "47 MiB are required" in refusal.message
    assert check_memory(process, build_request(Action.ENSURE, memory_bytes=46 * MIB)) is None

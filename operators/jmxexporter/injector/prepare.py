"""The program of the init container: copies the jars before the JVMs of a new pod start."""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

from operators.jmxexporter.injector.delivery import render_properties
from operators.jmxexporter.injector.messages import KIT_VARIABLE, START_VARIABLE, Start


def main(environ: Mapping[str, str] = os.environ) -> int:
    """Copy the jars, and write the settings of the agent.

    A JVM does not start if its options name a jar that does not exist. After an error this program
    therefore fails, so that the kubelet tries again before any JVM starts. The agent's jar is
    copied last, when everything that it needs exists.
    """
    start = Start.parse(environ[START_VARIABLE])
    jars, directory = Path(environ.get(KIT_VARIABLE, "/kit")), Path(start.directory)
    values = {
        "id": start.id,
        "engine": f"{start.directory}/engine.jar",
        "engineHash": hashlib.sha256((jars / "engine.jar").read_bytes()).hexdigest(),
        "config": start.config,
        "host": start.host,
        "port": str(start.port),
        "lastPort": str(start.last_port),
        "path": start.path,
        "mainClass": start.main_class,
        "excludeMainClass": start.exclude_main_class,
        "delayMillis": str(start.delay_millis),
        "pollMillis": str(start.poll_millis),
        "answer": start.answer,
        "memoryBytes": str(start.memory_bytes),
    }
    if start.config_text:
        (directory / Path(start.config).name).write_text(start.config_text)
    (directory / "start.properties").write_bytes(render_properties(values))
    for name in ("engine.jar", "agent.jar"):
        # Give the jar its name only after it was copied completely.
        partial = directory / f".{name}"
        shutil.copyfile(jars / name, partial)
        partial.chmod(0o644)
        partial.rename(directory / name)
    return 0


if __name__ == "__main__":
    sys.exit(main())

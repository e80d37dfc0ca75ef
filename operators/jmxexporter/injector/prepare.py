"""Put the jars where the JVMs of a new pod find them, before they start."""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

from operators.jmxexporter.injector.delivery import render_properties
from operators.jmxexporter.injector.messages import START_VARIABLE, Start
from operators.jmxexporter.injector.program import KIT_VARIABLE


def main(environ: Mapping[str, str] = os.environ) -> int:
    """Copy the jars and write what the agent is to do.

    The agent's jar comes last: a JVM whose option names a jar that is not there does not start, so
    this fails before it, and the kubelet tries again.
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
    }
    if start.config_text:
        (directory / Path(start.config).name).write_text(start.config_text)
    (directory / "start.properties").write_bytes(render_properties(values))
    for name in ("engine.jar", "agent.jar"):
        # Under its own name once it is whole.
        partial = directory / f".{name}"
        shutil.copyfile(jars / name, partial)
        partial.chmod(0o644)
        partial.rename(directory / name)
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""The program of the init container: copies the jars before the JVMs of a new pod start."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

from operators.jmxexporter.injector.delivery import render_properties
from operators.jmxexporter.injector.messages import KIT_VARIABLE, START_VARIABLE


def main(environ: Mapping[str, str] = os.environ) -> int:
    """Copy the jars, and write the settings of the agent.

    A JVM does not start if its options name a jar that does not exist. After an error this program
    therefore fails, so that the kubelet tries again before any JVM starts. The agent's jar is
    copied last, when everything that it needs exists.
    """
    values = json.loads(environ[START_VARIABLE])  # security: from the operator
    jars, directory = Path(environ.get(KIT_VARIABLE, "/kit")), Path(values.pop("directory"))
    if text := values.pop("configText", ""):
        (directory / Path(values["config"]).name).write_text(text)
    values["engine"] = f"{directory}/engine.jar"
    values["engineHash"] = hashlib.sha256((jars / "engine.jar").read_bytes()).hexdigest()
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

"""Run an injector: a request in the environment, a report as termination message."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from operators.jmxexporter.injector.access import Access
from operators.jmxexporter.injector.inject import AgentJars, run
from operators.jmxexporter.injector.messages import (
    CONFIG_VARIABLE,
    REQUEST_VARIABLE,
    Reason,
    Report,
    Request,
)

KIT_VARIABLE: Final = "JMX_KIT"
"""Environment variable with the directory of the jars."""
MESSAGE_VARIABLE: Final = "JMX_MESSAGE_FILE"
"""Environment variable with the path of the termination message."""


_OOM_SCORE: Final = Path("/proc/self/oom_score_adj")


def volunteer_for_oom_killer() -> None:
    """Have the kernel kill this process before the application if the pod runs out of memory.

    The kubelet gives all containers of a Guaranteed pod the same score, so the kernel would choose
    the larger process, which is the JVM. Any process may raise its own score.
    """
    with contextlib.suppress(OSError):
        _OOM_SCORE.write_text("1000")


def main(environ: Mapping[str, str] = os.environ) -> int:
    """Do what is asked; return 0 even for refusals, which the report explains."""
    volunteer_for_oom_killer()
    try:
        request = Request.parse(environ[REQUEST_VARIABLE])
        jars = AgentJars.of(Path(environ.get(KIT_VARIABLE, "/kit")))
        report = run(request, environ.get(CONFIG_VARIABLE, ""), jars, Access(environ))
    except Exception as error:  # noqa: BLE001 - whatever it is, the operator is to hear of it.
        report = Report(reason=Reason.AGENT_ERROR, message=f"{type(error).__name__}: {error}")
    text = report.render()
    print(text)
    Path(environ.get(MESSAGE_VARIABLE, "/dev/termination-log")).write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""The injector after `precheck`: executes the request in the environment."""

from __future__ import annotations

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


def run_request(environ: Mapping[str, str]) -> str:
    """Execute the request, and return the report, which explains refusals and errors."""
    try:
        request = Request.parse(environ[REQUEST_VARIABLE])
        jars = AgentJars.of(Path(environ.get(KIT_VARIABLE, "/kit")))
        report = run(request, environ.get(CONFIG_VARIABLE, ""), jars, Access(environ))
    except Exception as error:  # noqa: BLE001 - the report must explain every error.
        report = Report(reason=Reason.AGENT_ERROR, message=f"{type(error).__name__}: {error}")
    return report.render()

"""Run an injector: read a request from the environment, write a report as termination message.

This module must stay as small as `precheck`, for the same reason.
"""

import os
import sys

from operators.jmxexporter.injector import precheck

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

MESSAGE_VARIABLE = "JMX_MESSAGE_FILE"
"""Environment variable with the path of the termination message."""


def main(environ: "Mapping[str, str]" = os.environ) -> int:
    """Execute the request; return 0 even for refusals, which the report explains."""
    precheck.volunteer_for_oom_killer()
    text = precheck.find_refusal(environ) or _run(environ)
    print(text)
    path = environ.get(MESSAGE_VARIABLE, "/dev/termination-log")
    with open(path, "w") as file:
        file.write(text)
    return 0


def _run(environ: "Mapping[str, str]") -> str:
    """Return the report, which explains refusals and errors."""
    from pathlib import Path

    from operators.jmxexporter.injector import inject, messages
    from operators.jmxexporter.injector.access import Access
    from operators.jmxexporter.reasons import Reason

    try:
        request = messages.Request.parse(environ[messages.REQUEST_VARIABLE])
        jars = inject.AgentJars.of(Path(environ.get(messages.KIT_VARIABLE, "/kit")))
        config = environ.get(messages.CONFIG_VARIABLE, "")
        report = inject.run(request, config, jars, Access(environ))
    except Exception as error:  # noqa: BLE001 - the report must explain every error.
        message = f"{type(error).__name__}: {error}"
        report = messages.Report(reason=Reason.AGENT_ERROR, message=message)
    return report.render()


if __name__ == "__main__":
    sys.exit(main())

"""Command line: options, dispatch, errors and exit codes.

Commands are imported when they run, so that `--help` and completion start fast.
"""

from __future__ import annotations

import argparse
import importlib
import io
import os
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import redirect_stderr, redirect_stdout
from typing import TYPE_CHECKING, Any, NoReturn, TextIO, cast

from kubectl_slipway import __version__
from kubectl_slipway.errors import Exit, PluginError
from kubectl_slipway.output import SafeStream

if TYPE_CHECKING:
    from kubectl_slipway.api import Api

    # Imported by name when they run; the build finds them here.
    from kubectl_slipway.commands import (  # noqa: F401
        check,
        completion,
        force_finalize,
        ip,
        jmx,
        logs,
        pause,
        problems,
        pulsar,
        report,
        status,
        tree,
        vm,
        why,
    )

    Subparsers = argparse._SubParsersAction[Any]  # noqa: SLF001  # it has no public name

PROG = "kubectl slipway"
_FLAGS_HINT = "`kubectl options` lists the global flags."
_EPILOG = (
    "All global flags of kubectl, such as -n, --context and --as, can stand before and after the"
    f" command: {_FLAGS_HINT}"
)
_SHORT = {"-n": "--namespace", "-s": "--server", "-v": "--v"}
_SWITCHES = frozenset(
    {
        *("--disable-compression", "--insecure-skip-tls-verify", "--match-server-version"),
        "--warnings-as-errors",
    }
)
_FLAGS = frozenset(
    {
        *("--as", "--as-group", "--as-uid", "--as-user-extra", "--cache-dir"),
        *("--certificate-authority", "--client-certificate", "--client-key", "--cluster"),
        *("--context", "--kubeconfig", "--kuberc", "--namespace", "--password"),
        *("--request-timeout", "--server", "--tls-server-name", "--token", "--user"),
        *("--username", "--v", "--vmodule"),
    }
)
"""Global flags of kubectl that have a value."""
_WATCH_SECONDS = 2
_TARGET = "object, as KIND/NAME or KIND NAME"


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    out, err = SafeStream(sys.stdout), SafeStream(sys.stderr)
    with redirect_stdout(cast(TextIO, out)), redirect_stderr(cast(TextIO, err)):
        return _main(argv)


def _main(argv: Sequence[str] | None) -> int:
    arguments = list(sys.argv[1:] if argv is None else argv)
    if arguments[:1] == ["__complete"]:
        completion = importlib.import_module("kubectl_slipway.commands.completion")
        return int(completion.complete(build_parser(), _FLAGS | _SWITCHES, arguments[1:]))
    try:
        options = parse(arguments)
        command = importlib.import_module(f"kubectl_slipway.commands.{options.module}")
        if options.module == "completion":
            return int(command.run(None, options))
        code = _connect(command, options)
        # A reader that has ended shows now, not at exit.
        sys.stdout.flush()
        return code
    except PluginError as err:
        print(f"Error: {err.message}", file=sys.stderr)
        if err.remedy:
            print(f"{err.remedy}", file=sys.stderr)
        return int(err.code)
    except KeyboardInterrupt:
        return int(Exit.INTERRUPTED)
    except BrokenPipeError:
        # The reader of a pipe, such as head, has ended; Python would complain at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return int(Exit.OK)


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Parse a command, and the global flags of kubectl before, in and after it.

    Raises:
        PluginError: A flag has no value.
    """
    own: list[str] = []
    flags: list[str] = []
    words = iter(arguments)
    for word in words:
        name, equals, value = word.partition("=")
        if word[:2] in _SHORT:
            name, value = _SHORT[word[:2]], word[2:].removeprefix("=")
            equals = value
        if name in _SWITCHES:
            flags.append(word)
        elif name in _FLAGS:
            following = value if equals else next(words, None)
            if following is None:
                raise PluginError(f"{name} needs a value.", _FLAGS_HINT, Exit.USAGE)
            flags.append(f"{name}={following}")
        else:
            own.append(word)
    options = build_parser().parse_args(own)
    options.flags = flags
    return options


def _connect(command: Any, options: argparse.Namespace) -> int:
    """Run a command on the cluster that its flags name."""
    from kubectl_slipway.api import Api
    from kubectl_slipway.kubectl import Kubectl

    with Api(Kubectl(options.flags)) as api:
        if getattr(options, "watch", False):
            _repeat(lambda: _run(command, options, api))
        return _run(command, options, api)


def _run(command: Any, options: argparse.Namespace, api: Api) -> int:
    """Run a command once, on what the cluster has now."""
    from kubectl_slipway.cluster import Cluster

    cluster = Cluster(api)
    code: int = command.run(cluster, options)
    for note in dict.fromkeys(cluster.notes):
        print(f"Note: {note}", file=sys.stderr)
    # An incomplete result without a problem proves nothing.
    return int(Exit.FORBIDDEN if cluster.refused and code == Exit.OK else code)


class _Screen(io.StringIO):
    """Output that is collected before it is shown, for the same reader as standard output."""

    def __init__(self, *, terminal: bool) -> None:
        """Remember whether a person reads it."""
        super().__init__()
        self._terminal = terminal

    def isatty(self) -> bool:
        return self._terminal


def _repeat(run: Callable[[], int]) -> NoReturn:
    """Run a command again and again until Ctrl-C, and print what has changed."""
    terminal, shown = sys.stdout.isatty(), ""
    while True:
        screen = _Screen(terminal=terminal)
        with redirect_stdout(screen):
            run()
        text = screen.getvalue()
        if text != shown:
            if terminal:
                # From the top of an empty screen.
                cast(SafeStream, sys.stdout).stream.write("\033[H\033[J")
            print(text, flush=True)
        shown = text
        time.sleep(_WATCH_SECONDS)


class _Parser(argparse.ArgumentParser):
    """A parser that names the remedy and exits with the usage code."""

    def error(self, message: str) -> NoReturn:
        print(f"Error: {message}\nSee '{self.prog} --help'.", file=sys.stderr)
        raise SystemExit(int(Exit.USAGE))


def build_parser() -> argparse.ArgumentParser:
    """Build the parser of all commands."""
    parser = _Parser(
        prog=PROG, description="Operate Slipway operators and their objects.", epilog=_EPILOG
    )
    parser.add_argument("--version", action="version", version=f"kubectl-slipway {__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True, title="commands")
    _add_reports(commands)
    _add_objects(commands)
    _add_domains(commands)
    _add_tools(commands)
    return parser


def _add_reports(commands: Subparsers) -> None:
    each = _add(commands, "status", "show operators, leaders, watched namespaces, object counts")
    _add_watch(each)
    _add_output(each)
    each = _add(commands, "problems", "list the objects that are not ready")
    each.add_argument("-A", "--all-namespaces", action="store_true", help="search all namespaces")
    each.add_argument("-l", "--selector", default="", help="only objects with these labels")
    _add_watch(each)
    _add_output(each)
    each = _add(commands, "why", "explain why an object is not ready, and what to do")
    _add_target(each)
    _add_watch(each)
    _add_output(each)
    each = _add(commands, "tree", "show an object, its children and the objects to which it refers")
    _add_target(each)
    _add_output(each)


def _add_objects(commands: Subparsers) -> None:
    for name, text in (
        ("pause", "stop the operator from reconciling an object"),
        ("resume", "let the operator reconcile a paused object again"),
    ):
        each = _add(commands, name, text, module="pause", pause=name == "pause")
        _add_target(each)
    each = _add(commands, "force-finalize", "skip the clean-up of an object that is being deleted")
    _add_target(each)
    each.add_argument("-y", "--yes", action="store_true", help="skip the confirmation")


def _add_domains(commands: Subparsers) -> None:
    _add_machines(commands)
    addresses = _add_group(commands, "ip", "show public addresses")
    each = _add(
        addresses,
        "pools",
        "show how many addresses of each pool are in use",
        module="ip",
        action="pools",
    )
    _add_output(each)
    each = _add(addresses, "who", "show which claim has an address", module="ip", action="who")
    each.add_argument("address", metavar="ADDRESS", help="IPv4 or IPv6 address")
    _add_output(each)
    consumers = _add_group(commands, "pulsar", "operate PulsarConsumers")
    each = _add(
        consumers, "backlog", "show the backlog of the topics", module="pulsar", action="backlog"
    )
    each.add_argument(
        "name",
        metavar="NAME",
        nargs="?",
        default="",
        help="name of the PulsarConsumer; default: all",
    )
    _add_output(each)
    for name, text in (("pause", "stop all consumers"), ("resume", "start the consumers again")):
        each = _add(consumers, name, text, module="pulsar", action=name)
        each.add_argument("name", metavar="NAME", help="name of the PulsarConsumer")
    each = _add(
        consumers,
        "seek",
        "move the subscription to another position",
        module="pulsar",
        action="seek",
    )
    each.add_argument("name", metavar="NAME", help="name of the PulsarConsumer")
    each.add_argument(
        "--to", required=True, metavar="POSITION", help="earliest, latest or a time (RFC 3339)"
    )
    each = _add(
        consumers,
        "redrive",
        "send dead letters back to their topic",
        module="pulsar",
        action="redrive",
    )
    each.add_argument("name", metavar="NAME", help="name of the PulsarConsumer")
    each.add_argument(
        "--limit", type=int, metavar="NUMBER", help="maximum number of messages; default: all"
    )
    exporters = _add_group(commands, "jmx", "show metrics of JVMs")
    each = _add(exporters, "scan", "show the JVMs that an exporter has found", module="jmx")
    each.add_argument("name", metavar="NAME", help="name of the PrometheusJmxExporter")
    _add_output(each)


def _add_machines(commands: Subparsers) -> None:
    machines = _add_group(commands, "vm", "operate virtual machines (Instances)")
    for name, text in (
        ("start", "start a stopped machine"),
        ("stop", "shut a machine down"),
        ("reboot", "shut a machine down and start it again"),
        ("soft-reboot", "ask the guest to reboot"),
        ("rebuild", "replace the root disk with a new disk from the image"),
        ("resize", "change the InstanceSize or the instancetype of a machine"),
        ("migrate", "move a running machine to another node"),
        ("snapshot", "take a snapshot of a machine"),
        ("restore", "replace the root disk with a disk from a snapshot"),
        ("rescue", "boot a machine from a rescue image"),
    ):
        each = _add(machines, name, text, module="vm", type=name)
        each.add_argument("name", metavar="NAME", help="name of the Instance")
        if name in ("rebuild", "rescue"):
            each.add_argument(
                "--image",
                required=name == "rescue",
                metavar="URL",
                help="image for the new disk: http(s)://... or docker://..."
                + ("; default: the image of the Instance" if name == "rebuild" else ""),
            )
        if name == "rescue":
            each.add_argument(
                "--duration", type=int, metavar="SECONDS", help="end the rescue after this time"
            )
        if name == "resize":
            _add_sizes(each)
        if name == "migrate":
            each.add_argument(
                "--node-selector",
                action="append",
                default=[],
                metavar="KEY=VALUE",
                help="label that the new node must have; can be repeated",
            )
        if name == "snapshot":
            each.add_argument(
                "--snapshot-name",
                metavar="NAME",
                help="name of the snapshot; default: the name of the Operation",
            )
        if name == "restore":
            each.add_argument("--snapshot", required=True, help="name of a VirtualMachineSnapshot")
        each.add_argument(
            "--fail-if-busy",
            action="store_true",
            help="fail instead of queueing behind another Operation",
        )
        each.add_argument(
            "--wait", action="store_true", help="wait until the Operation ends, and show its steps"
        )
        each.add_argument(
            "--timeout",
            type=int,
            default=3600,
            metavar="SECONDS",
            help="stop waiting after this time; the Operation continues; default: 3600",
        )


def _add_sizes(parser: argparse.ArgumentParser) -> None:
    group = parser.add_mutually_exclusive_group(required=True)
    group.add_argument("--size", help="name of an InstanceSize")
    group.add_argument(
        "--instancetype",
        metavar="NAME",
        help="name of a VirtualMachineClusterInstancetype of KubeVirt; "
        "virtualmachineinstancetype/NAME for one in the namespace",
    )


def _add_tools(commands: Subparsers) -> None:
    each = _add(commands, "check", "check whether the cluster has what the operators need")
    _add_output(each)
    each = _add(commands, "logs", "print the log of an operator")
    each.add_argument("operator", metavar="OPERATOR", help="id of the operator, such as podset")
    each.add_argument("--object", default="", metavar="NAME", help="only lines about this object")
    each.add_argument(
        "--tail",
        type=int,
        default=500,
        metavar="LINES",
        help="number of recent lines of each pod; default: 500",
    )
    each = _add(commands, "report", "write an archive for a bug report, without secrets")
    each.add_argument(
        "--file",
        default="slipway-report.zip",
        help="path of the archive; default: slipway-report.zip",
    )
    each = commands.add_parser(
        "completion",
        help="print a completion script",
        description="Print a completion script. `kubectl slipway` needs the script for kubectl.",
    )
    each.add_argument(
        "shell", choices=("kubectl", "bash", "zsh", "fish"), help="kubectl, or your shell"
    )
    each.set_defaults(module="completion")


def _add(commands: Subparsers, name: str, text: str, **defaults: Any) -> argparse.ArgumentParser:
    sentence = text[0].upper() + text[1:] + "."
    added: argparse.ArgumentParser = commands.add_parser(
        name, help=text, description=sentence, epilog=_EPILOG
    )
    added.set_defaults(**{"module": name.replace("-", "_"), **defaults})
    return added


def _add_group(commands: Subparsers, name: str, text: str) -> Subparsers:
    sentence = text[0].upper() + text[1:] + "."
    added = commands.add_parser(name, help=text, description=sentence, epilog=_EPILOG)
    group: Subparsers = added.add_subparsers(metavar="COMMAND", required=True, title="commands")
    return group


def _add_watch(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-w", "--watch", action="store_true", help="repeat until Ctrl-C, and print what changes"
    )


def _add_output(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-o",
        "--output",
        choices=("table", "json", "yaml"),
        default="table",
        help="output format; default: table",
    )


def _add_target(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("target", metavar="KIND/NAME", help=_TARGET)
    parser.add_argument("second", metavar="NAME", nargs="?", default="", help=argparse.SUPPRESS)

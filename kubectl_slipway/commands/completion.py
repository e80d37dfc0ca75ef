"""`kubectl slipway completion`: scripts for bash, zsh and fish, and the completion itself."""

from __future__ import annotations

import argparse
from collections.abc import Collection

from kubectl_slipway.errors import Exit

_KUBECTL = """#!/bin/sh
# kubectl calls this file to complete `kubectl slipway`. Put it on PATH as kubectl_complete-slipway.
exec kubectl-slipway __complete "$@"
"""
_BASH = """_kubectl_slipway() {
  COMPREPLY=($(compgen -W "$(kubectl-slipway __complete "${COMP_WORDS[@]:1:COMP_CWORD}")" \\
    -- "${COMP_WORDS[COMP_CWORD]}"))
}
complete -F _kubectl_slipway kubectl-slipway
"""
_ZSH = """#compdef kubectl-slipway
_kubectl_slipway() {
  compadd -- $(kubectl-slipway __complete "${words[@]:1:$((CURRENT-1))}")
}
compdef _kubectl_slipway kubectl-slipway
"""
_FISH = """complete -c kubectl-slipway -f -a \\
  '(kubectl-slipway __complete (commandline -opc)[2..] (commandline -ct))'
"""
SCRIPTS = {"kubectl": _KUBECTL, "bash": _BASH, "zsh": _ZSH, "fish": _FISH}


def run(_: object, options: argparse.Namespace) -> Exit:
    """Print the script of a shell."""
    print(SCRIPTS[options.shell], end="")
    return Exit.OK


def complete(parser: argparse.ArgumentParser, flags: Collection[str], words: list[str]) -> int:
    """Print what can follow the words; the last one is being typed.

    Args:
        parser: The parser of all commands.
        flags: Options that can stand everywhere.
        words: Words after the name of the program.
    """
    typed, words = (words[-1], words[:-1]) if words else ("", [])
    options: dict[str, argparse.Action] = {}
    commands: dict[str, argparse.ArgumentParser] = {}
    for word in [None, *words]:
        if word is not None:
            if word not in commands:
                continue
            parser = commands[word]
        options = {name: a for a in parser._actions for name in a.option_strings}  # noqa: SLF001
        commands = {}
        for action in parser._actions:  # noqa: SLF001  # argparse has no public way to list them
            if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001
                commands = dict(action.choices)
    last = options.get(words[-1]) if words else None
    if last is not None and last.nargs != 0:
        found = [str(each) for each in last.choices or ()]
    else:
        found = [*commands] if not typed.startswith("-") else [*options, *sorted(flags)]
    print("\n".join(each for each in found if each.startswith(typed)))
    return 0

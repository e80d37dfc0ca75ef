"""The group of all commands, whose help has the form that argparse gives the other tools."""

from __future__ import annotations

from typing import Any

from typer.core import TyperArgument, TyperGroup, TyperOption


class Commands(TyperGroup):
    """Commands whose help shows `--follow` and `--name NAME`, not `<bool>` and `<str>`."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the options of the group itself."""
        return _name_values(super().get_params(ctx))

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return a command; None if there is none of this name."""
        command = super().get_command(ctx, cmd_name)
        if command is not None:
            _name_values(command.get_params(ctx))
        return command


def _name_values(parameters: list[Any]) -> list[Any]:
    """Let help show the name of a value next to a parameter, not its type."""
    for parameter in parameters:
        shown = _name_value(parameter)
        if shown is not None:
            # typer offers no option for this.
            vars(parameter)["display_type_rich"] = lambda ctx, shown=shown: shown
    return parameters


def _name_value(parameter: Any) -> str | None:
    """Return the name of a value; None to show the choices."""
    if isinstance(parameter, TyperArgument):
        choices = parameter.type_descriptor.choices or ()
        return "|".join(choice.value for choice in choices)
    if not isinstance(parameter, TyperOption) or parameter.is_flag:
        return ""
    if parameter.metavar is not None:
        return None
    if parameter.type_descriptor.is_choice:
        return "|".join(choice.value for choice in parameter.type_descriptor.choices or ())
    return parameter.name.upper().replace("_", "-") if parameter.name else ""

"""Errors of the CRD package: models without a structural schema, and objects that do not match."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from libs.common.errors import SlipwayError, TerminalError


class SchemaError(SlipwayError):
    """A model contains something that a Kubernetes structural schema cannot express.

    Attributes:
        problems: One sentence for each invalid field, starting with its path.
    """

    def __init__(self, model: str, problems: Sequence[str]) -> None:
        """List every problem, so that one run of the generator shows them all."""
        self.problems = tuple(problems)
        lines = "".join(f"\n* {problem}" for problem in self.problems)
        super().__init__(f"{model} cannot become a structural schema:{lines}")


@dataclass(frozen=True, slots=True)
class FieldError:
    """A field that does not match its model.

    Attributes:
        path: Serialized path, such as `spec.template.spec.containers[0]`.
        message: What is wrong with it.
    """

    path: str
    message: str

    def __str__(self) -> str:
        """Render for messages: `spec.replicas: must be ...`."""
        return f"{self.path}: {self.message}" if self.path else self.message


class ParseError(TerminalError):
    """An object does not match its model: retrying is useless until a person edits it.

    Attributes:
        errors: Every invalid field.
    """

    def __init__(self, subject: str, errors: Sequence[FieldError]) -> None:
        """Build the message from the object (`PodSet default/web`) and its invalid fields."""
        self.errors = tuple(errors)
        details = "; ".join(str(error) for error in self.errors)
        field = self.errors[0].path if self.errors else ""
        super().__init__("InvalidSpec", f"{subject}: {details}", field=field)

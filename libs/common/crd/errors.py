"""Errors of the CRD package: about models that cannot be schemas, and objects that do not fit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from libs.common.errors import SlipwayError, TerminalError


class SchemaError(SlipwayError):
    """A model says something that a Kubernetes structural schema cannot say.

    Attributes:
        problems: One sentence for each offending field, starting with its path.
    """

    def __init__(self, model: str, problems: Sequence[str]) -> None:
        """List every offender, so that one run of the generator shows them all."""
        self.problems = tuple(problems)
        lines = "".join(f"\n* {problem}" for problem in self.problems)
        super().__init__(f"{model} cannot become a structural schema:{lines}")


@dataclass(frozen=True, slots=True)
class FieldError:
    """Name one field that does not fit its model.

    Attributes:
        path: Serialized path, such as `spec.template.spec.containers[0]`.
        message: What is wrong with it.
    """

    path: str
    message: str

    def __str__(self) -> str:
        """Render as it stands in messages: `spec.replicas: must be ...`."""
        return f"{self.path}: {self.message}" if self.path else self.message


class ParseError(TerminalError):
    """An object does not fit its model: nothing changes until a person edits it.

    Attributes:
        errors: Every offending field.
    """

    def __init__(self, subject: str, errors: Sequence[FieldError]) -> None:
        """Build the text from the object (`PodSet default/web`) and its offending fields."""
        self.errors = tuple(errors)
        details = "; ".join(str(error) for error in self.errors)
        field = self.errors[0].path if self.errors else ""
        super().__init__("InvalidSpec", f"{subject}: {details}", field=field)

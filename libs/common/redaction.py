"""Keeps secrets out of logs, Events and traces.

Three methods complement each other: values of keys that name a secret are removed, objects of kind
Secret are reduced to their name, and text that looks like a credential is removed.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Final

REDACTED: Final = "[redacted]"
"""Replacement for a secret."""

_MAX_DEPTH: Final = 12
_MAX_TEXT: Final = 16_384
_LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"

_SENSITIVE_KEY: Final = re.compile(
    r"passw(or)?d|passphrase|token|secret|authorization|credential|cookie|api_?key"
    r"|(private|access|client|signing|encryption)_?key|kubeconfig|string_?data|bearer",
)
# A name, a path or a number that belongs to a secret is not the secret.
_HARMLESS_KEY: Final = re.compile(
    r"(name|names|namespace|ref|refs|count|seconds|bytes|path|file|kind|uid|version|type)$"
    r"|^fencing_token$"
)
_KEYS: Final = r"(?:api|private|access|client|signing|encryption)[_-]?key"
# The end of a name is enough: to look for its beginning takes the square of a long text's length.
_WORDS: Final = rf"(?:passw(?:or)?d|passphrase|token|secret|credentials?|{_KEYS})"
_ISSUED: Final = r"gh[opsur]_\w{16}|github_pat_\w|glpat-[\w-]{16}|xox[abeoprs]-|AKIA[0-9A-Z]{16}"
"""Beginnings of tokens that their issuers marked: GitHub, GitLab, Slack, AWS."""
_VERBS: Final = r"(?:and|cannot|has|is|must|needs|or|was)"
"""What follows the name of a flag in a message about it."""
_TEXT_RULES: Final = (
    (
        re.compile(
            r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*KEY-----|\Z)", re.DOTALL
        ),
        REDACTED,
    ),
    (re.compile(r"\beyJ[\w-]{6,1024}\.[\w-]{6,}(?:\.[\w-]*)?"), REDACTED),
    # Long, or with a digit or capital letter: "basic health check" is not a credential.
    (
        re.compile(r"\b((?i:bearer|basic))\s+(?:(?=\S*[A-Z0-9=])[\w.~+/=-]{6,}|[\w.~+/=-]{20,})"),
        rf"\1 {REDACTED}",
    ),
    (re.compile(r"(://)[^/@\s]+@"), rf"\1{REDACTED}@"),
    (re.compile(rf"\b(?:{_ISSUED})[\w-]*"), REDACTED),
    # The signature of a URL, with which anybody may read what it names.
    (re.compile(r"""([?&][\w-]{0,32}sig(?:nature)?=)[^&\s"']+""", re.IGNORECASE), rf"\1{REDACTED}"),
    # An entry of `env` in JSON.
    (
        re.compile(
            rf"""("name"\s*:\s*"[\w.-]{{0,64}}{_WORDS}[\w.-]*"\s*,\s*"value"\s*:\s*)"(?:\\.|[^"\\])*\"""",
            re.IGNORECASE,
        ),
        rf'\1"{REDACTED}"',
    ),
    # A key and its value in JSON, a Python repr, a query string or a flag.
    (
        re.compile(rf"""({_WORDS}["']?\s*[=:]\s*)(["'])(?:\\.|(?!\2).)*\2""", re.IGNORECASE),
        rf"\1\2{REDACTED}\2",
    ),
    (re.compile(rf"""({_WORDS}=)(?!["'\[])[^\s&,;)]+""", re.IGNORECASE), rf"\1{REDACTED}"),
    # A flag with its value, and a line of YAML or a header. "token: expired" is a message.
    (
        re.compile(
            rf"(--[\w-]{{0,64}}{_WORDS}|\s(?:-u|--user))\s+(?![-\[]|{_VERBS}\b)\S+", re.IGNORECASE
        ),
        rf"\1 {REDACTED}",
    ),
    (
        re.compile(rf"""((?:passw(?:or)?d|{_KEYS}):\s+)(?!["'\[])\S+""", re.IGNORECASE),
        rf"\1{REDACTED}",
    ),
)
# Most texts contain none of these, and one scan is cheaper than ten.
_SUSPICIOUS: Final = re.compile(
    rf"passw|passphrase|token|secret|credential|private|bearer|basic\s|eyJ|://[^/\s]*@|{_KEYS}"
    rf"|\s-u\s|--user\s|sig=|signature=|{_ISSUED}",
    re.IGNORECASE,
)


def is_sensitive_key(key: str) -> bool:
    """Return whether the value of a key is probably a secret.

    This is true for `token`, `dbPassword` and `secret`, but not for `secret_name` and `tokenPath`.
    """
    snake = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", key).replace("-", "_").lower()
    return bool(_SENSITIVE_KEY.search(snake)) and not _HARMLESS_KEY.search(snake)


def redact_text(text: str) -> str:
    """Remove everything that looks like a credential from a text."""
    if len(text) > _MAX_TEXT:
        text = f"{text[:_MAX_TEXT]}... ({len(text)} characters)"
    if _SUSPICIOUS.search(text):
        for pattern, replacement in _TEXT_RULES:
            text = pattern.sub(replacement, text)
    return text


def redact(value: object, depth: int = 0) -> object:
    """Return a copy of a value without its secrets that can be rendered as JSON.

    Args:
        value: Any value; objects that are not containers are converted to text.
        depth: Depth of the value in its container; values deeper than 12 are omitted. Pass a
            negative number for values that may be deeper.
    """
    match value:
        case None | bool() | int() | float():
            return value
        case str():
            return redact_text(value)
        case bytes() | bytearray() | memoryview():
            return f"[{len(value)} bytes]"
        case _ if depth >= _MAX_DEPTH:
            return "[...]"
        case Mapping():
            return _redact_mapping(value, depth)
        case list() | tuple() | set() | frozenset():
            return [redact(item, depth + 1) for item in value]
        case _:
            # A model of pydantic; the plugin uses this module without pydantic.
            dump: Callable[[], object] | None = getattr(value, "model_dump", None)
            return redact(dump(), depth) if dump else redact_text(_render_object(value))


def redact_items(items: Iterable[tuple[str, object]]) -> dict[str, object]:
    """Return a copy of named values without their secrets."""
    return {
        key: REDACTED if value and is_sensitive_key(key) else redact(value, 1)
        for key, value in items
    }


def _redact_mapping(value: Mapping[object, object], depth: int) -> object:
    kind = value.get("kind")
    if kind in ("Secret", "SecretList") and "apiVersion" in value:
        return _describe_secret(value)
    named = value.get("name")
    hides_value = isinstance(named, str) and "value" in value and is_sensitive_key(named)
    result: dict[str, object] = {}
    for key, item in value.items():
        name = str(key)
        if name == _LAST_APPLIED or (name == "value" and hides_value):
            result[name] = REDACTED
        elif is_sensitive_key(name) and not isinstance(item, Mapping | list | tuple | bool):
            # A container with such a name, such as `secretKeyRef`, is a reference: check its
            # values.
            result[name] = item if item is None else REDACTED
        else:
            result[name] = redact(item, depth + 1)
    return result


def _render_object(value: object) -> str:
    try:
        return str(value)
    except Exception as err:  # noqa: BLE001 whatever an object does, a log line must not fail
        return f"[{type(value).__name__} that cannot be shown: {type(err).__name__}]"


def _describe_secret(value: Mapping[object, object]) -> str:
    metadata = value.get("metadata")
    if value.get("kind") == "SecretList" or not isinstance(metadata, Mapping):
        return f"{value.get('kind')} {REDACTED}"
    name, namespace = metadata.get("name", ""), metadata.get("namespace")
    return f"Secret {f'{namespace}/' if namespace else ''}{name} {REDACTED}"

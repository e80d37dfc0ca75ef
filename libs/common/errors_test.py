"""Which error a response of the API server becomes."""

from __future__ import annotations

import pytest

from libs.common.errors import (
    AlreadyExists,
    ApiError,
    Conflict,
    Forbidden,
    Invalid,
    ServerError,
    api_error,
    patch_error,
)

DENIED = 'admission webhook "a.example.com" denied the request: no'
POLICY = (
    """pods "a" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied request: no"""
)
UNFIT = "the server rejected our request due to an error in our request"


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({"code": 409, "reason": "Conflict", "message": "has been modified"}, Conflict),
        ({"code": 409, "reason": "AlreadyExists", "message": "exists"}, AlreadyExists),
        ({"code": 409, "reason": "Conflict", "message": DENIED}, Forbidden),
        *(({"code": code, "message": DENIED}, Forbidden) for code in (404, 410, 429, 500, 504)),
        ({"code": 401, "reason": "Unauthorized", "message": POLICY}, Forbidden),
        ({"code": 500, "message": f"etcd: {DENIED}"}, ServerError),
        ({"code": 422, "reason": "Invalid", "message": UNFIT}, Conflict),
        ({"code": 422, "reason": "Invalid", "message": DENIED}, Invalid),
        (
            {
                "code": 422,
                "reason": "Invalid",
                "message": UNFIT,
                "details": {"causes": [{"field": "spec", "message": "no"}]},
            },
            Invalid,
        ),
    ],
)
def test_refusal_that_is_repeated_is_no_conflict(
    body: dict[str, object], expected: type[ApiError]
) -> None:
    error = api_error(500, body, operation="PATCH pods/a")

    assert type(patch_error(error) if isinstance(error, Invalid) else error) is expected

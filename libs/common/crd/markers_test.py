from __future__ import annotations

from libs.common.crd.markers import Rule


def test_rule_writes_only_what_differs_from_its_defaults() -> None:
    rule = Rule(
        "self > 0",
        "must be positive",
        reason="FieldValueForbidden",
        message_expression="'got ' + string(self)",
        optional_old_self=True,
    )

    assert rule.to_manifest() == {
        "rule": "self > 0",
        "message": "must be positive",
        "messageExpression": "'got ' + string(self)",
        "reason": "FieldValueForbidden",
        "optionalOldSelf": True,
    }

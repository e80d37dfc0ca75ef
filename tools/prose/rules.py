"""Phrases that a reader of Kubernetes documentation stumbles over, and what to write instead."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class Rule:
    """One construction to avoid.

    Attributes:
        name: Short identifier, also the file name of the generated Vale rule.
        pattern: Regular expression without flags; it is matched regardless of case.
        instead: What to write instead, for the person who reads the finding.
    """

    name: str
    pattern: str
    instead: str

    def find(self, text: str) -> list[re.Match[str]]:
        """Return the matches in a text."""
        return list(re.finditer(self.pattern, text, re.IGNORECASE))


RULES: Final = (
    Rule("Again", r"\banew\b|\bonce more\b", "again"),
    Rule(
        "Anyone",
        r"\bwhoever\b|(?:^|[.;:(|] )who (?:may|wants|can|has)\b",
        "anyone who; name the person",
    ),
    Rule("Anyway", r"\bbe (?:it|they)\b|\bbe that\b", "whether"),
    Rule("BetterVerb", r"\breckon(?:s|ed|ing)?\b|\bwish(?:es|ed)?\b", "calculate; want, request"),
    Rule(
        "Converged",
        r"\b(?:un)?settled\b|\bsettles?\b(?! for)",
        "converged, in sync; settle is vague",
    ),
    Rule("Continue", r"\bgo(?:es|ing)? on\b|\bwent on\b", "continue"),
    Rule("CompareWith", r"\bheld? against\b|\bholds? against\b", "compare with, check against"),
    Rule("Except", r"\bbut for\b", "except"),
    Rule("Fix", r"\bmend(?:s|ed|ing)?\b|\bput right\b", "fix, repair"),
    Rule("For", r"\bfor ever\b|\bforever\b|\bfor good\b", "indefinitely, permanently"),
    Rule(
        "Immediately",
        r"(?<!all )\bat once\b(?! more)",
        "immediately; at the same time if that is meant",
    ),
    Rule("Instruction", r"\b(?:is|are) (?:not )?to (?:be\b|[a-z]{3,}\b)", "must, should, will"),
    Rule(
        "Name",
        r"\bwhat there is\b|\bwhat it takes\b|\bthe one (?:that|before|after)\b"
        r"|\bthose (?:there|here)\b|\bwhat (?:is|was) there\b",
        "name the thing",
    ),
    Rule("NextTo", r"(?<!-)\bbeside\b", "next to, in addition to, compared with"),
    Rule(
        "Number",
        r"\bsome \d+\b|\ba quarter of (?:an|a)\b|\bhalf as (?:much|many|long) again\b",
        "about 20 s, 15 minutes",
    ),
    Rule(
        "Reconcile",
        r"\b(?:a|each|every|this|one|next|per|no|last|first) pass(?:es)?\b",
        "reconcile",
    ),
    Rule("RepeatNoun", r"\b(?:that|those) of\b", "repeat the noun"),
    Rule(
        "Reports",
        r"\b(?:is|are|be|was|were|gets?) told\b"
        r"|\btells? (?:of|whether|what|which|how|when|where|so)\b",
        "reports, describes, shows",
    ),
    Rule(
        "Response",
        r"\b(?:an|the|no|its|each|every|any|their|of|without) answers?\b",
        "response; or name what was returned",
    ),
    Rule("RollBack", r"\bset(?:s|ting)? back\b", "roll back"),
    Rule("Route", r"\bleads? (?:to|nowhere)\b|\bled to\b", "routes traffic to; causes"),
    Rule(
        "Allocate", r"\btake(?:s|n)? back\b|\bgive(?:s|n)? back\b|\bgave back\b", "release, return"
    ),
    Rule("SentenceAlso", r", also\b|, too\b", "even after, including, as well"),
    Rule("Unhandled", r"\bdefects?\b", "unhandled error, bug"),
    Rule("Vulnerability", r"\bweakness(?:es)?\b", "vulnerability"),
    Rule("Wrong", r"\bamiss\b", "wrong, faulty"),
    Rule("WhereIf", r"\bwhere one\b|\bwhere (?:it|they|there|nothing|something|no)\b", "if, when"),
    Rule(
        "Delete",
        r"\b(?:it|object|pod|claim|machine|disk) goes\b(?! (?:through|to|into|via|on|back))",
        "is deleted, disappears",
    ),
    Rule(
        "ToHave",
        r"\bit is for\b|\bis there for\b|\bare there for\b",
        "must; say what it does",
    ),
)

"""The command ./dev prose: counts phrases that are not plain English, and lists them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tools.cluster.command_line import Parser
from tools.prose.corpora import CORPORA
from tools.prose.limits import FILE, load_limits, lower
from tools.prose.text import check
from tools.prose.vale import render_vale

ROOT: Final = Path(__file__).resolve().parents[2]


def main(argv: Sequence[str] | None = None) -> int:
    """Print the counts, and the findings if they are asked for."""
    parser = Parser(
        prog="./dev prose",
        description="Count phrases that are not plain English, per 1,000 words of each corpus.",
    )
    parser.add_argument("corpus", nargs="*", help=f"one of {', '.join(CORPORA)}; all by default")
    parser.add_argument("--list", action="store_true", help="list every finding")
    parser.add_argument(
        "--path",
        default="",
        metavar="PREFIX",
        help="check only files whose path begins with PREFIX",
    )
    parser.add_argument("--rules", action="store_true", help="count findings by rule")
    parser.add_argument(
        "--lower", action="store_true", help="lower the limits to the measured values"
    )
    parser.add_argument("--write-vale", action="store_true", help="only write the rules for Vale")
    options = parser.parse_args(argv)
    if options.write_vale:
        for path, text in render_vale().items():
            (ROOT / path).parent.mkdir(parents=True, exist_ok=True)
            (ROOT / path).write_text(text)
        return 0
    unknown = set(options.corpus) - set(CORPORA)
    if unknown:
        parser.error(
            f"unknown corpus {', '.join(sorted(unknown))}: choose from {', '.join(CORPORA)}"
        )
    limits, rates = load_limits(), {}
    for name in options.corpus or CORPORA:
        passages = CORPORA[name](ROOT)
        count = check(each for each in passages if each.file.startswith(options.path))
        if options.list:
            for finding in count.findings:
                print(finding)
        if options.rules:
            for rule, number in Counter(each.rule.name for each in count.findings).most_common():
                print(f"  {number:5} {rule}")
        rates[name] = count.rate
        print(
            f"{name:12} {count.words:7} words {len(count.findings):5} findings"
            f" {count.rate:5.1f} per 1,000 (limit {limits.get(name, 0.0):.1f})"
        )
    if options.lower:
        if options.path:
            parser.error("--lower measures whole corpora: leave --path out")
        FILE.write_text(json.dumps(limits | lower(limits, rates), indent=2) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

"""What `specmeter audit` makes of true and of doctored tables and logs.

    uv run python benchmarks/audit_corpus.py [--write] [--verbose]

Audits the corpus of `tests/audit/` and prints the page about it; `--write` writes it to `benchmarks/audit-corpus.md`.
Every row of a true file that is called impossible is a false alarm, and `implausible` is one too unless the file says
which assumption does not hold for it. `--verbose` also lists what of the true files could not be read.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from audit.page import Result, audit_all, page  # noqa: E402

PAGE = ROOT / "benchmarks" / "audit-corpus.md"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help=f"write {PAGE.relative_to(ROOT)}")
    parser.add_argument("--verbose", action="store_true", help="list what could not be read")
    args = parser.parse_args()
    result = audit_all()
    if args.write:
        PAGE.write_text(page(result), encoding="utf-8")
    else:
        print(page(result))
    print_details(result, verbose=args.verbose)


def print_details(result: Result, *, verbose: bool) -> None:
    """False alarms with their arithmetic, and, where asked for, what was not read."""
    for item, heard in result.true:
        for row, verdict, bound, arithmetic in heard.rulings:
            if verdict == "impossible" or (verdict == "implausible" and not item.known_false):
                print(f"false alarm: {item.name}, {row}: {verdict}, {bound}: {arithmetic}", file=sys.stderr)
            elif verbose and (verdict == "unread" or bound == "unreadable"):
                print(f"not read: {item.name}, {row}: {arithmetic}", file=sys.stderr)
        if verbose and item.expect == "possible" and not heard.words["possible"]:
            print(f"nothing possible: {item.name}: {heard.rulings[0][3]}", file=sys.stderr)


if __name__ == "__main__":
    main()

"""The part of `make check` that is neither ruff nor mypy: one line per problem.

python tests/check.py
"""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

import documents  # noqa: E402
import house_rules  # noqa: E402

from benchmarks.documents import check_marks  # noqa: E402
from benchmarks.harness import load_benchmarks  # noqa: E402
from ocr.errors import ConfigError  # noqa: E402


def main() -> int:
    found = [*documents.problems(), *house_rules.problems(), *house_rules.wrong_doctests()]
    try:
        check_marks(ROOT, load_benchmarks())
    except ConfigError as error:
        found += [f"figures: {line}" for line in error.value]  # type: ignore[attr-defined]
    print("\n".join(found) or "documents, layout and examples: nothing is wrong")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())

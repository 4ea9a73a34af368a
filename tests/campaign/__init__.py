"""A randomised campaign over the real objects: faults injected, and inputs fuzzed, each reproducible from its seed.

python -m tests.campaign --minutes 5 --seed 1                 a share of every class
python -m tests.campaign --only cache-flip --case 1:cache-flip:17    one case again
"""

import sys
from pathlib import Path

TESTS = Path(__file__).resolve().parent.parent
# The suites drive the same objects: their helpers are imported by the names that they have there.
for _room in ("", "cache", "tools", "datasets", "deploy", "deploy/service", "formats", "training"):
    sys.path.append(str(TESTS / _room))

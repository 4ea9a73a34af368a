"""What `glyphfeed train`, `test`, `predict` and `sweep` compose from the configs and run."""

import os

# Before torch is loaded: OpenMP threads that wait for work by spinning take the cores from the loader's workers.
os.environ.setdefault("GOMP_SPINCOUNT", "0")

"""Epochs of the data path, configuration by configuration, as `ocr bench` measures them.

python scripts/benchmark_validation.py                                 # the demo's data
python scripts/benchmark_validation.py --list                          # the names of the configurations
python scripts/benchmark_validation.py dataset_base_path=DIR --only "disk,tensor cache,dali" --rounds 5
python scripts/benchmark_validation.py dataset_base_path=DIR --split train --csv bench.csv --json bench.json
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from ocr.advisor.commands.bench import bench
from ocr.advisor.commands.standalone import run_alone

if __name__ == "__main__":
    run_alone(bench)

# Validation epochs, one configuration after the other: python scripts/benchmark_validation.py dataset_base_path=DIR
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from ocr.advisor.job import main, run

if __name__ == "__main__":
    main(run, "split=val", "step_ms=0", "all_rows=true")

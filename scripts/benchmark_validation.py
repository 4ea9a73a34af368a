# Epochs of the data path in one configuration after the other: python scripts/benchmark_validation.py --list
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from ocr.cli import main

if __name__ == "__main__":
    main("bench")

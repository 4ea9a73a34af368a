# What each stage and transform takes (`ocr profile`): python scripts/profile_transforms.py dataset_base_path=DIR
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from ocr.cli import main

if __name__ == "__main__":
    main("profile")

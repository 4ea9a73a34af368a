# What each stage and transform takes: python scripts/profile_transforms.py dataset_base_path=DIR
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from ocr.advisor.job import main, show_stages

if __name__ == "__main__":
    main(show_stages, "data.cache=off")  # The stages in front of the cache, too.

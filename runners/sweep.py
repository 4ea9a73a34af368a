# Find the best thresh, box_thresh and unclip_ratio: python runners/sweep.py checkpoint_path=.../best.ckpt
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from ocr.jobs.sweep import main

if __name__ == "__main__":
    main()

# Score a checkpoint: python runners/test.py checkpoint_path=outputs/DAY/TIME/checkpoints/best.ckpt
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from ocr.jobs.test import main

if __name__ == "__main__":
    main()

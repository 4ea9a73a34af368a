# Train a text detector: python runners/train.py dataset_base_path=DIR model=lite trainer.max_epochs=5
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from ocr.jobs.train import main

if __name__ == "__main__":
    main()

# Find the text on a folder of images: python runners/predict.py checkpoint_path=.../best.ckpt images=FOLDER
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from ocr.jobs.predict import main

if __name__ == "__main__":
    main()

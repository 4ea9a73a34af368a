# Draw the loss and the H-mean of a run: python scripts/plot_run.py outputs/DAY/TIME curve.png
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from ocr.tools.plot_run import main

if __name__ == "__main__":
    main()

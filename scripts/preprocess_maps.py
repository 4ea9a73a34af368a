# Write maps to <images>_maps/<stem>.npz: python scripts/preprocess_maps.py dataset_base_path=DIR splits=[val]
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from ocr.tools.preprocess_job import main

if __name__ == "__main__":
    main()

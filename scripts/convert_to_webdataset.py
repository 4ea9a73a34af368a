# Write tar shards: python scripts/convert_to_webdataset.py dataset_base_path=DIR out=SHARDS splits=[val]
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from ocr.tools.convert.job import main

if __name__ == "__main__":
    main()

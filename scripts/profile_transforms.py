"""What every stage and transform takes by itself, as `ocr profile` tells.

python scripts/profile_transforms.py                                   # the demo's data
python scripts/profile_transforms.py dataset_base_path=DIR --split val
python scripts/profile_transforms.py dataset_base_path=DIR --sizes 640,1024 --model model=lite --json profile.json
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from ocr.advisor.commands.profile import profile
from ocr.advisor.commands.standalone import run_alone

if __name__ == "__main__":
    run_alone(profile)

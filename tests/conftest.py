"""What all tests share: the repository's root on the path, and one small dataset a session."""

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
RECEIPTS = ROOT.parent / "shared" / "data" / "receipts"


@pytest.fixture(scope="session")
def synthetic(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Eight training and six validation pages; read only."""
    from ocr.tools.synth import synthesize

    folder = tmp_path_factory.mktemp("synthetic") / "data"
    synthesize(folder, train=8, val=6, seed=3, megapixels=(0.5, 1.2), workers=1, show_progress=False)
    return folder


@pytest.fixture(scope="session", autouse=True)
def cache_of_the_session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Caches of tests are none of the user's."""
    folder = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GLYPHFEED_CACHE", str(folder))
        yield folder


@pytest.fixture
def dataset_folder(synthetic: Path, tmp_path: Path) -> Path:
    """A copy of the pages that a test may change."""
    return Path(shutil.copytree(synthetic, tmp_path / "data"))


@pytest.fixture(scope="session")
def receipts() -> Path:
    """The real receipts, where they lie beside the repository."""
    if not RECEIPTS.is_dir():
        pytest.skip("the real receipts are not here")
    return RECEIPTS

"""What all tests share: the repository's root on the path, and one small dataset per run."""

import fcntl
import logging
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import settings

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
RECEIPTS = ROOT.parent / "shared" / "data" / "receipts"
OF_A_RANK = {"MASTER_ADDR", "MASTER_PORT", "NODE_RANK", "LOCAL_RANK", "WORLD_SIZE", "RANK"}

if "PYTEST_XDIST_WORKER" in os.environ:
    # One worker per core: more threads only wait for each other. Must be set before torch is imported.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
# Ray gives its helpers a minute to start, which is short on a busy machine.
os.environ.setdefault("RAY_DASHBOARD_STARTUP_TIMEOUT_S", "600")
os.environ.setdefault("RAY_gcs_server_port_wait_time_s", "600")


# How long an example takes says nothing on a busy machine. `make test` tries the same examples every time.
settings.register_profile("ci", deadline=None, max_examples=25, derandomize=True)
settings.register_profile("all", deadline=None, max_examples=500)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--rewrite-snapshots", action="store_true", help="write tests/snapshots/ instead of comparing")


def make_once(tmp_path_factory: pytest.TempPathFactory, name: str, make: Callable[[Path], object]) -> Path:
    """A folder that the first xdist worker to need it makes for all of them; read only."""
    base = tmp_path_factory.getbasetemp()
    base = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    folder = base / name
    with (base / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            make(unfinished := base / f"{name}.unfinished")
            unfinished.rename(folder)
    return folder


@pytest.fixture(scope="session")
def synthetic(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Eight training and six validation pages; read only."""
    from ocr.tools.synth import synthesize

    def make(folder: Path) -> None:
        synthesize(folder, train=8, val=6, seed=3, megapixels=(0.5, 1.2), workers=1, show_progress=False)

    return make_once(tmp_path_factory, "synthetic", make)


@pytest.fixture(scope="session", autouse=True)
def cache_of_the_session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Caches of tests are none of the user's."""
    folder = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GLYPHFEED_CACHE", str(folder))
        yield folder


@pytest.fixture(autouse=True)
def no_rank_left_behind() -> Iterator[None]:
    """A ddp strategy in this process says in the environment which rank it is: runs that a later test starts would take
    that for their own, and wait for ranks that nobody starts."""
    before = {name for name in OF_A_RANK if name in os.environ}
    yield
    for name in OF_A_RANK - before:
        os.environ.pop(name, None)


@pytest.fixture
def dataset_folder(synthetic: Path, tmp_path: Path) -> Path:
    """A copy of the pages that a test may change."""
    return Path(shutil.copytree(synthetic, tmp_path / "data"))


@pytest.fixture(scope="session")
def receipts() -> Path:
    """The real receipts, if they are beside the repository."""
    if not RECEIPTS.is_dir():
        pytest.skip("the real receipts are not here")
    return RECEIPTS


@pytest.fixture(autouse=True)
def logging_restored() -> Iterator[None]:
    """Hydra and uvicorn configure logging for the whole process: what a later test logs would be lost."""
    root = logging.getLogger()
    handlers, level, disabled = root.handlers[:], root.level, root.manager.disable
    loggers = {name: (one.level, one.disabled, one.propagate) for name, one in _loggers()}
    yield
    root.handlers[:], root.level, root.manager.disable = handlers, level, disabled
    for name, one in _loggers():
        one.level, one.disabled, one.propagate = loggers.get(name, (logging.NOTSET, False, True))
    root.manager._clear_cache()  # type: ignore[attr-defined]  # Of levels.


def _loggers() -> list[tuple[str, logging.Logger]]:
    known = logging.getLogger().manager.loggerDict
    return [(name, one) for name, one in known.items() if isinstance(one, logging.Logger) and name.startswith("ocr")]


@pytest.fixture
def snapshot(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[str, str], None]:
    """Compares what a user reads with tests/snapshots/NAME.txt; `make snapshots` rewrites all of them."""

    def compare(name: str, text: str) -> None:
        file = ROOT / "tests" / "snapshots" / f"{name}.txt"
        shown = "\n".join(line.rstrip() for line in text.replace(str(tmp_path), "DIR").splitlines()) + "\n"
        if request.config.getoption("--rewrite-snapshots"):
            file.write_text(shown)
        assert shown == file.read_text(), f"{file.name} differs. If the new wording is meant: make snapshots"

    return compare

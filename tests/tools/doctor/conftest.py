"""The dataset that each test fills with the defects it is about."""

from pathlib import Path

import pytest
from doctor_data import SmallDataset


@pytest.fixture
def dataset(tmp_path: Path) -> SmallDataset:
    return SmallDataset(tmp_path / "data")

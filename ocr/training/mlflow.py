"""MLflow: a server, or a database and files in the folder of the run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lightning.pytorch.loggers import MLFlowLogger


def mlflow_logger(save_dir: str, tracking_uri: str | None = None, **settings: Any) -> MLFlowLogger:
    """Lightning's logger; without a server it writes into `save_dir`, as MLflow's own default does where it runs."""
    if tracking_uri is not None:
        return MLFlowLogger(tracking_uri=tracking_uri, **settings)
    folder = Path(save_dir).absolute()
    folder.mkdir(parents=True, exist_ok=True)
    return MLFlowLogger(
        tracking_uri=f"sqlite:///{folder / 'mlflow.db'}", artifact_location=(folder / "mlruns").as_uri(), **settings
    )

"""The model that comes with the package."""

from importlib import resources
from pathlib import Path

from strata.core.errors import UsageError

DEMO_NAME = "strata-demo"


def model_path(model: str | Path | None) -> Path:
    """What the user named, or the packaged demo model; UsageError when it is missing."""
    if model is not None:
        return Path(model)
    path = Path(str(resources.files("strata").joinpath("data", "demo.gguf")))
    if not path.is_file():
        raise UsageError("no model was named and the packaged demo model is missing", "name a .gguf file or a folder")
    return path

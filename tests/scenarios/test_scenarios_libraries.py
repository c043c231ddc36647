"""Libraries that are lent to jobs of another environment."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

from scenarios.libraries import link_libraries


@pytest.fixture
def python(tmp_path: Path) -> Path:
    """The interpreter of an environment that has torch and a numpy of its own, and nothing else."""
    packages = tmp_path / "venv" / "lib" / f"python3.{sys.version_info.minor}" / "site-packages"
    for name in ("torch", "numpy"):
        (packages / name).mkdir(parents=True)
    return tmp_path / "venv" / "bin" / "python"


def test_a_library_is_lent_with_what_it_requires(python: Path, tmp_path: Path) -> None:
    """But not what the environment has itself; torch never."""
    pytest.importorskip("accelerate")
    folder = link_libraries(["accelerate"], python, tmp_path / "lent")
    lent = {path.name for path in folder.iterdir()}
    assert {"accelerate", "huggingface_hub", "safetensors", "yaml"} <= lent
    assert not {"torch", "numpy"} & lent
    specification = importlib.util.find_spec("accelerate")
    assert specification is not None
    assert specification.origin is not None
    assert (folder / "accelerate" / "__init__.py").samefile(specification.origin)


def test_torch_itself_is_never_lent(python: Path, tmp_path: Path) -> None:
    """A need that the other environment meets by itself."""
    assert not list(link_libraries(["torch"], python, tmp_path / "lent").iterdir())

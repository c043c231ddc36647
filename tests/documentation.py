"""Builds the site of the documentation, for the tests."""

from __future__ import annotations

from pathlib import Path

from mkdocs.commands.build import build
from mkdocs.config import load_config

ROOT = Path(__file__).resolve().parents[1]


def make_site(site: Path, **settings: object) -> None:
    """Build with mkdocs.yml as ``make site`` does: it raises Abort where there was a warning."""
    config = load_config(str(ROOT / "mkdocs.yml"), site_dir=str(site), strict=True, **settings)
    config.plugins.on_startup(command="build", dirty=False)
    try:
        build(config)
    finally:
        config.plugins.on_shutdown()

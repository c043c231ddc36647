"""Pure Python libraries of this environment, lent to jobs of the environment that ``make nccl`` builds."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path


def link_libraries(needs: Iterable[str], python: Path, folder: Path) -> Path:
    """Fill a new folder, for ``PYTHONPATH``, with links to what ``needs`` require and ``python``'s environment has not.

    Both environments have the same version of Python. Its torch is never replaced.
    """
    (packages,) = python.parents[1].glob("lib/python3.*/site-packages")
    there = {path.name for path in packages.iterdir()}
    folder.mkdir(parents=True)
    for name in _required(needs):
        for file in distribution(name).files or ():
            top = file.parts[0]
            if top not in there and top not in {"..", "__pycache__"} and not (folder / top).is_symlink():
                (folder / top).symlink_to(Path(str(distribution(name).locate_file(top))))
    return folder


def _required(needs: Iterable[str]) -> Iterator[str]:
    """The distributions and all that they require here, but torch."""
    seen: set[str] = {"torch"}
    waiting = list(needs)
    while waiting:
        name = re.split(r"[^\w.-]", waiting.pop(), maxsplit=1)[0].lower().replace("_", "-")
        if name in seen:
            continue
        seen.add(name)
        try:
            requires = distribution(name).requires or ()
        except PackageNotFoundError:
            continue  # an extra that nobody has installed
        yield name
        waiting += [required for required in requires if "extra ==" not in required]

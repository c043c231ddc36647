"""``python -m corpus unpack FAMILY FOLDER``: put the programs of a family into a folder, to read, run or correct them.

``python -m corpus pack FAMILY FOLDER`` puts them back, with what was corrected or added there.
"""

from __future__ import annotations

import sys
from pathlib import Path

from corpus.catalogue import keep_programs, unpack


def main(arguments: list[str]) -> int:
    """Returns 0, or 2 where the arguments are others."""
    match arguments:
        case ["unpack", family, folder]:
            print(f"{len(list(unpack(family, Path(folder)).iterdir()))} files in {folder}")
        case ["pack", family, folder]:
            keep_programs(family, Path(folder))
        case _:
            print(__doc__, file=sys.stderr)
            return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

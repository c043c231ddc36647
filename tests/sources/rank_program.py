"""A stand-in for a rank, in milliseconds: ``rank_program.py FOLDER NAME [torch]``.

Writes its pid to ``FOLDER/NAME`` once it is up and sleeps. With ``torch`` it maps a file named as torch's library is, which
is all that discovery looks at. ``START`` in the environment holds JSON of programs to start as children before that:
``{"command": [...], "env": {...}}`` each.
"""

from __future__ import annotations

import json
import mmap
import os
import subprocess
import sys
import time
from pathlib import Path


def main() -> None:
    """Start the children, say so, rest."""
    folder, name = Path(sys.argv[1]), sys.argv[2]
    children = [
        subprocess.Popen(child["command"], env={**os.environ, "START": "[]", **child["env"]})
        for child in json.loads(os.environ.get("START", "[]"))
    ]
    mapped = None
    if "torch" in sys.argv[3:]:
        library = folder / f"{name}-lib" / "libtorch_cpu.so"
        library.parent.mkdir()
        library.write_bytes(b"\0" * 4096)
        with library.open("rb") as file:
            mapped = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
    (folder / f"{name}.new").write_text(str(os.getpid()))
    (folder / f"{name}.new").rename(folder / name)
    time.sleep(3600)
    print(children, mapped)


if __name__ == "__main__":
    main()

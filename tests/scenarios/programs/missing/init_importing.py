"""One rank never gets to ``init_process_group``: an import of it does not return.

A plug-in warms up at import time: it starts a thread and joins it, and the thread imports the plug-in, whose import
lock is held. Only rank 1 has the plug-in configured. Run by ``torchrun --nproc-per-node 3``.
"""

import importlib
import os
import sys
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist

PLUGIN = """
import threading

TABLE = {}


def warm_up():
    from fast_tokens import lookup
    TABLE.update(lookup.entries())


thread = threading.Thread(target=warm_up, name="warm-up")
thread.start()
thread.join()
"""
LOOKUP = "def entries():\n    return {'a': 1}\n"


def install(folder: Path) -> None:
    """Put the plug-in where Python finds it."""
    package = folder / "fast_tokens"
    package.mkdir()
    (package / "__init__.py").write_text(PLUGIN)
    (package / "lookup.py").write_text(LOOKUP)
    sys.path.insert(0, str(folder))


def load_plugins(rank: int) -> list[object]:
    """The plug-ins this rank is configured with."""
    with tempfile.TemporaryDirectory() as folder:
        install(Path(folder))
        return [importlib.import_module(name) for name in (["fast_tokens"] if rank == 1 else [])]


def main() -> None:
    """Plug-ins first, then the process group."""
    torch.set_num_threads(1)
    plugins = load_plugins(int(os.environ["RANK"]))
    dist.init_process_group("gloo")
    count = torch.tensor(len(plugins))
    dist.all_reduce(count)
    print(f"{count.item()} plug-ins in all", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

"""What ``hangwatch.report()`` costs a training loop, without and with the probe: nanoseconds a call, best of ten rounds.

Run: ``python benchmarks/report_cost.py``. Beside them a call of an empty function, for the machine's own speed.
"""

from __future__ import annotations

import importlib
import os
import sys
import tempfile
import timeit
from pathlib import Path

import hangwatch


def _nothing(**_: object) -> None:
    return


def _ns(call: object) -> float:
    rounds = timeit.repeat(lambda: call(step=1, loss=0.5, lr=1e-3, grad_norm=1.0), number=20_000, repeat=10)  # type: ignore[operator]
    return min(rounds) / 20_000 * 1e9


def main() -> None:
    """Measure and print."""
    print(f"empty function {_ns(_nothing):8.0f} ns")
    print(f"without probe  {_ns(hangwatch.report):8.0f} ns")
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "ranks").mkdir()
        os.environ["HANGWATCH_RUN_DIR"] = folder
        importlib.import_module("hangwatch.probe")

        assert "torch" not in sys.modules
        print(f"with probe     {_ns(hangwatch.report):8.0f} ns")


if __name__ == "__main__":
    main()

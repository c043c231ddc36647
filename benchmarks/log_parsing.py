"""How fast training logs are read: megabytes a second, beside ``grep`` on the same file, and the memory it takes.

Run: ``python benchmarks/log_parsing.py [MEGABYTES]``. Writes a log of each kind into a temporary directory (so it comes
from the page cache), reads each as the agent does (``Follower`` and ``LogStream``), and counts lines with ``loss`` with
GNU grep in the C locale. CPU time of both; seven rounds in turn, and the best of each is shown, as other work on the
machine only ever slows. ``all`` is the same, once, with every line parsed, as ``hangwatch diagnose`` reads a log.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import tempfile
import tracemalloc
from collections.abc import Callable
from pathlib import Path

from hangwatch.training.sources.follow import Follower
from hangwatch.training.sources.stream import LogStream

_TEXT = b"[2026-11-21 10:00:00,123] [INFO] [engine.py:120:train_batch] possible skew across stages 0 and 1: 12.3 ms\n"
_BAR = "\r 25%|██▌       | 100/400 [00:10<00:30,  9.91it/s]".encode()
_LOSS = b"{'loss': 0.6931, 'grad_norm': 1.25, 'learning_rate': 0.00025, 'epoch': 0.25}\n"
_STEP = b"step: 10  loss:  7.1234  grad_norm:  1.2345  memory:  1.00GiB(1.00%)  tps: 1,000  tflops: 1.00  mfu: 1.00%\n"


def _ordinary() -> bytes:
    return (_TEXT * 200 + _BAR * 50 + _LOSS) * 8


KINDS: dict[str, Callable[[], bytes]] = {
    "text and progress bars, a loss every 250 lines": _ordinary,
    "nothing but lines with a loss (transformers)": lambda: _LOSS * 2000,
    "nothing but lines with a loss (torchtitan)": lambda: _STEP * 2000,
    "random bytes": lambda: random.Random(1).randbytes(1 << 20),  # noqa: S311
    "lines of 10 MB": lambda: b"x loss " * ((10 << 20) // 7) + b"\n",
}


def _write(path: Path, block: bytes, size_bytes: int) -> int:
    with path.open("wb") as file:
        while file.tell() < size_bytes:
            file.write(block)
        return file.tell()


def _read(path: Path, *, sampled: bool = True) -> int:
    follower, stream, found = Follower(path), LogStream(str(path), sampled=sampled), 0
    for _, data in follower.read_new(1 << 40):
        found += len(stream.feed(data, 0))
    follower.close()
    return found


def _grep(path: Path) -> None:
    subprocess.run(["grep", "-ac", "loss", str(path)], env={**os.environ, "LC_ALL": "C"}, stdout=subprocess.DEVNULL)  # noqa: PLW1510


def _cpu_s() -> float:
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def _timed(work: Callable[[Path], object], path: Path) -> float:
    start_s = _cpu_s()
    work(path)
    return max(_cpu_s() - start_s, 0.01)


def main() -> None:
    """Measure and print a table."""
    size_bytes = int(float(sys.argv[1]) * 1e6) if len(sys.argv) > 1 else 200_000_000
    print(f"{'log':48} {'MB/s':>7} {'grep MB/s':>10} {'ratio':>6} {'all MB/s':>8} {'steps':>8} {'peak MB':>8}")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "train.log"
        for name, make in KINDS.items():
            written = _write(path, make(), size_bytes)
            rounds = [(_timed(_read, path), _timed(_grep, path)) for _ in range(7)]
            ours_s, grep_s = (min(column) for column in zip(*rounds, strict=True))
            all_s = _timed(lambda path: _read(path, sampled=False), path)
            tracemalloc.start()
            steps = _read(path)
            peak = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
            print(
                f"{name:48} {written / 1e6 / ours_s:7.0f} {written / 1e6 / grep_s:10.0f} {grep_s / ours_s:6.2f}"
                f" {written / 1e6 / all_s:8.0f} {steps:8} {peak / 1e6:8.1f}",
                flush=True,
            )


if __name__ == "__main__":
    main()

"""CPU time of diagnosing every kept capture of the catalogue, decoding left out.

Run: ``python benchmarks/diagnosing.py`` in a checkout with its environment. To compare two versions, run it in both, in turn.
"""

from __future__ import annotations

import gzip
import time
from pathlib import Path

import msgspec

from hangwatch.diagnosis.verdict import diagnose
from hangwatch.model.capture import Capture

CAPTURES = Path(__file__).resolve().parents[1] / "tests" / "scenarios" / "captures"


def main() -> None:
    """Diagnose them one after the other."""
    spent_s, count = 0.0, 0
    for path in sorted(CAPTURES.glob("*.json.gz")):
        capture = msgspec.json.decode(gzip.decompress(path.read_bytes()), type=Capture)
        began_s = time.process_time()
        diagnose(capture)
        spent_s += time.process_time() - began_s
        count += 1
    print(f"{count} captures: {spent_s:.2f} s of CPU time, {1000 * spent_s / max(1, count):.1f} ms each")


if __name__ == "__main__":
    main()

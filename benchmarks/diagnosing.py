"""CPU time of diagnosing every kept capture of the catalogue, decoding left out.

Run: ``PYTHONPATH=. python benchmarks/diagnosing.py`` in a checkout with its environment; to compare two versions, in both,
in turn.
"""

from __future__ import annotations

import time

from corpus.catalogue import captured, load_capture, load_catalogue
from hangwatch.diagnosis.verdict import diagnose


def main() -> None:
    """Diagnose them one after the other."""
    spent_s, count = 0.0, 0
    for entry in captured(load_catalogue()):
        capture = load_capture(entry)
        began_s = time.process_time()
        diagnose(capture)
        spent_s += time.process_time() - began_s
        count += 1
    print(f"{count} captures: {spent_s:.2f} s of CPU time, {1000 * spent_s / max(1, count):.1f} ms each")


if __name__ == "__main__":
    main()

"""The analysis of large jobs from status and operations in flight, and their stacks merged: ``large_jobs.py [RANKS ...]``.

CPU seconds of this process and its highest resident memory; each size wants a process of its own to tell its memory.
"""

from __future__ import annotations

import resource
import sys
import time

from hangwatch.diagnosis.document import make_incident
from hangwatch.diagnosis.verdict import diagnose
from hangwatch.model.stacks import Frame
from hangwatch.outputs.stack_tree import merge_stacks
from jobs import capture_of

_DEPTH = 40


def main() -> None:
    """A line a size."""
    for ranks in [int(argument) for argument in sys.argv[1:]] or [512, 4096, 16384]:
        capture = capture_of(ranks)
        began = time.process_time()
        diagnosis = diagnose(capture)
        make_incident(diagnosis, detected_ns=capture.at_ns, confirmed_ns=capture.at_ns)
        diagnosed_s = time.process_time() - began
        frames = [Frame(f"f{i}", f"/srv/train/m{i % 9}.py", i) for i in range(_DEPTH)]
        stacks = {r: [Frame("wait", "/srv/train/w.py", r % 5), *frames[1:]] for r in range(ranks)}
        began = time.process_time()
        merge_stacks(stacks)
        merged_s = time.process_time() - began
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(
            f"{ranks:6} ranks: culprits {diagnosis.verdict.culprit_ranks}, diagnosed in {diagnosed_s:.2f} s, "
            f"stacks merged in {merged_s:.2f} s, {memory:.0f} MB"
        )


if __name__ == "__main__":
    main()

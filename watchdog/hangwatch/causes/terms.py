"""What known libraries do for a rank, in the words of their users: where only the library's lines are on a stack. Pure.

The line that has asked for it is on no stack any more: a value was logged, and is averaged when the epoch ends.
"""

from __future__ import annotations

from collections.abc import Sequence

from hangwatch.analysis.places import called_by_user, calls
from hangwatch.model.stacks import Frame

#: A part of a file's path, functions in it, and what a rank does there.
_TERMS: tuple[tuple[str, tuple[str, ...], str], ...] = (
    # lightning 2.6: ``_ResultMetric.compute``
    (
        "/connectors/logger_connector/result.py",
        ("compute",),
        "averages a value that it has logged with `sync_dist=True`",
    ),
    # torchmetrics 1.9: ``Metric.sync``
    ("torchmetrics/metric.py", ("sync",), "gathers the state of a metric from all ranks"),
    # accelerate 1.15: ``DataLoaderDispatcher``
    ("accelerate/data_loader.py", ("_fetch_batches",), "takes its next batch from a loader that reads for all ranks"),
    # transformers 5.23: ``Trainer.evaluation_loop``
    ("transformers/trainer.py", ("evaluation_loop",), "evaluates"),
)


def say_term(rank: int, path: Sequence[Frame]) -> str:
    """Return a sentence on what a library does for a rank; empty if no known one does anything below the user's line."""
    below = called_by_user(path)
    does = next((words for part, functions, words in _TERMS if calls(below, part, *functions) is not None), "")
    return f" Rank {rank} {does}." if does else ""

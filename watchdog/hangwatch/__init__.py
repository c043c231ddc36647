"""hangwatch: finds hangs of distributed PyTorch jobs while they happen, proves and explains them.

A rank may import this file, to ``report`` or to get ``hangwatch.probe``, and must get nothing else with it.
"""

import sys as _sys

__version__ = "0.2.0"


def __getattr__(name: str) -> object:
    """Return the probe's class ``HangDetected``, which is raised in a rank of a job that hangs (``--on-hang raise``)."""
    if name != "HangDetected":
        raise AttributeError(f"module 'hangwatch' has no attribute {name!r}")
    probe = _sys.modules.get("_hangwatch_probe")
    if probe is None:
        import importlib

        probe = importlib.import_module("hangwatch.probe")
    return probe.HangDetected


def report(
    *,
    step: "float | None" = None,
    loss: "float | None" = None,
    lr: "float | None" = None,
    grad_norm: "float | None" = None,
    **_ignored: object,
) -> None:
    """Tell hangwatch a step of a training loop of your own; without hangwatch beside the job it does nothing.

    Never raises, costs about a microsecond, and never waits for a device: give plain numbers (``loss.item()`` where you
    have it anyway). A tensor is ignored, as is any argument of another name.
    """
    probe = _sys.modules.get("_hangwatch_probe")
    if probe is not None:
        try:  # noqa: SIM105  # contextlib is an import
            probe.report(step, loss, lr, grad_norm)
        except Exception:  # noqa: BLE001, S110
            pass

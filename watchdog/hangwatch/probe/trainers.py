"""Trainers and engines of this process: noted when they are made, read from the probe's thread, never called into.

Standard library only. A class of a training library gets an ``__init__`` that notes the new object weakly before it
runs the original. No callback is added, no step is touched, nothing is kept alive. Only attributes that hold plain
numbers are read. A tensor is read only if the engine itself computes on the CPU: otherwise it would make the rank
wait for its device.

Read from the source of transformers 4.57.6 and 5.23.0 (``trainer.py``: ``Trainer.log`` appends to
``state.log_history`` what it shows its callbacks), DeepSpeed 0.19.8 (``runtime/engine.py``: ``_take_model_step``) and
Lightning 2.6.6 (``trainer.py``).
"""

from __future__ import annotations

import functools
import sys
import weakref
from collections import deque
from typing import Any, Callable, Deque, Iterator

#: Module: the class in it, and the source's name.
TARGETS = {
    "transformers.trainer": ("Trainer", "transformers"),
    "deepspeed.runtime.engine": ("DeepSpeedEngine", "deepspeed"),
    "lightning.pytorch.trainer.trainer": ("Trainer", "lightning"),
    "pytorch_lightning.trainer.trainer": ("Trainer", "lightning"),
}
_DISTRIBUTIONS = ("torch", "transformers", "accelerate", "deepspeed", "lightning", "pytorch_lightning", "trl", "peft")
_REWARDS = ("reward", "rewards/chosen", "rewards/margins")
_LIVING = 8

#: The last few objects that were made: source's name and a weak reference.
born: Deque[tuple[str, Callable[[], Any]]] = deque(maxlen=_LIVING)


def watch_class(module: Any, notify: Callable[[], None]) -> None:
    """Note every new object of the module's trainer class and call ``notify``; neither may fail."""
    name, source = TARGETS[module.__name__]
    owner = getattr(module, name)
    plain = owner.__init__

    @functools.wraps(plain)
    def __init__(self: Any, *arguments: Any, **options: Any) -> None:
        try:
            born.append((source, weakref.ref(self)))
            notify()
        except Exception:
            pass
        plain(self, *arguments, **options)

    owner.__init__ = __init__


def living() -> Iterator[tuple[str, Any]]:
    """Yield the trainers and engines that are still alive, oldest first, each with its source's name."""
    for source, reference in list(born):
        found = reference()
        if found is not None:
            yield source, found


def read_versions() -> dict[str, str]:
    """Return the versions of the training libraries that this process has imported."""
    found = {}
    for name in _DISTRIBUTIONS:
        version = getattr(sys.modules.get(name), "__version__", None)
        if version is not None:
            found[name] = str(version)
    return found


def number(value: Any, on_cpu: bool = False) -> float | int | None:
    """Return a plain number, also NumPy's; else None.

    ``on_cpu``: a tensor of one element counts too, because it is in ordinary memory.
    """
    if isinstance(value, (bool, int, float)):
        return value
    kind = type(value)
    if kind.__module__ == "numpy" and getattr(value, "ndim", 1) == 0:
        return value.item()  # type: ignore[no-any-return]
    plain = on_cpu and kind.__module__ == "torch" and kind.__name__ == "Tensor"
    if plain and value.device.type == "cpu" and value.numel() == 1:
        return value.item()  # type: ignore[no-any-return]
    return None


class TrainerLog:
    """Reads what a transformers Trainer has logged since the last reading."""

    def __init__(self) -> None:
        self._history: list[Any] | None = None
        self._seen = 0

    def read_new(self, trainer: Any, limit: int) -> list[dict[str, Any]]:
        """Return the new training entries, the last ``limit`` of them.

        Entries of a checkpoint that was resumed from do not count.
        """
        state = vars(trainer).get("state")
        history = vars(state).get("log_history") if state is not None else None
        if not isinstance(history, list):
            return []
        if history is self._history:
            new = history[self._seen :]
        else:
            # A loaded state has its history from JSON, which was written with sorted keys.
            new = [entry for entry in history[-limit:] if list(entry) != sorted(entry)]
        self._history, self._seen = history, len(history)
        return [entry for entry in new[-limit:] if "loss" in entry and isinstance(entry.get("step"), int)]


def reward_of(entry: dict[str, Any]) -> float | None:
    """Return the reward that a trainer on rewards or preferences (TRL's) logs beside its loss; None without one."""
    for name in _REWARDS:
        value = number(entry.get(name))
        if value is not None:
            return float(value)
    return None


def read_trainer_step(trainer: Any) -> int | None:
    """Return the optimizer step that a transformers Trainer has reached; None if unknown."""
    step = vars(vars(trainer)["state"]).get("global_step")
    return step if isinstance(step, int) else None


def read_lightning_step(trainer: Any) -> int | None:
    """Return the optimizer step that a Lightning Trainer has reached; None if unknown.

    Its metrics are tensors on the device and are not read.
    """
    step = trainer.global_step
    return step if isinstance(step, int) else None


def read_trainer_settings(trainer: Any) -> dict[str, Any] | None:
    """Return the ``model.telemetry.TrainerSettings`` of a transformers Trainer; None if unknown."""
    args = vars(trainer).get("args")
    if args is None:
        return None
    values = vars(args)
    return _known(
        source="transformers",
        name=type(trainer).__name__,
        nan_filter=values.get("logging_nan_inf_filter"),
        logging_steps=values.get("logging_steps"),
        dtype="bf16" if values.get("bf16") else "fp16" if values.get("fp16") else "fp32",
        gradient_accumulation_steps=values.get("gradient_accumulation_steps"),
        output_dir=values.get("output_dir"),
        logging_dir=values.get("logging_dir"),
    )


def read_engine_step(engine: Any, on_cpu: bool) -> dict[str, Any] | None:
    """Return what a DeepSpeed engine knows of its last step; None before the first, and while one is being finished."""
    values = vars(engine)
    step, skipped = values.get("global_steps"), values.get("skipped_steps")
    if not isinstance(step, int) or step <= 0:
        return None
    optimizer = values.get("optimizer")
    groups: Any = getattr(optimizer, "param_groups", None) or ({},)
    own = vars(optimizer) if hasattr(optimizer, "__dict__") else {}
    scaler = own.get("loss_scaler") or own.get("loss_scale_config")
    found = _known(
        step=step,
        skipped_steps=skipped,
        learning_rate=number(groups[0].get("lr"), on_cpu),
        grad_norm=number(values.get("_global_grad_norm"), on_cpu),
        loss_scale=number(getattr(scaler, "cur_scale", own.get("cur_scale"))),
    )
    return found if values.get("global_steps") == step else None


def computes_on_cpu(engine: Any) -> bool:
    """True if the engine's device is the CPU."""
    return getattr(vars(engine).get("device"), "type", None) == "cpu"


def read_engine_settings(engine: Any) -> dict[str, Any] | None:
    """Return the ``model.telemetry.DeepSpeedSettings`` in force; None until the engine has an optimizer."""
    config, optimizer = vars(engine).get("_config"), vars(engine).get("optimizer")
    if config is None or optimizer is None:
        return None
    zero, own = getattr(config, "zero_config", None), getattr(optimizer, "__dict__", {})
    bf16, fp16 = getattr(config, "bfloat16_config", None), getattr(config, "float16_config", None)
    dtype = (
        "bf16"
        if getattr(bf16, "enabled", getattr(config, "bfloat16_enabled", False))
        else "fp16"
        if getattr(fp16, "enabled", getattr(config, "fp16_enabled", False))
        else "fp32"
    )
    stage = _integer(getattr(zero, "stage", None))
    checks = own.get("check_grad_overflow")
    if checks is None and stage in (1, 2):
        checks = getattr(bf16, "check_grad_overflow", None) if dtype == "bf16" else dtype == "fp16"
    return _known(
        source="engine",
        stage=stage,
        overlap_comm=own.get("overlap_comm", getattr(zero, "overlap_comm", None)),
        reduce_bucket_size=_integer(getattr(zero, "reduce_bucket_size", None)),
        dtype=dtype,
        check_grad_overflow=checks,
        gradient_accumulation_steps=_integer(getattr(config, "gradient_accumulation_steps", None)),
    )


def _known(**values: Any) -> dict[str, Any]:
    """Return the known values of types that JSON has; classes of NumPy and the like are left out."""
    return {name: value for name, value in values.items() if isinstance(value, (bool, int, float, str))}


def _integer(value: Any) -> int | None:
    return int(value) if isinstance(value, (int, float)) else None

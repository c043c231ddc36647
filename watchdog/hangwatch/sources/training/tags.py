"""Names under which trackers are given scalars, and what they are. Pure; standard library only.

transformers 5.23.0 (``integrations/integration_utils.py``, ``rewrite_logs``): ``train/loss``; Lightning: whatever the
module logs, mostly ``train_loss``; torchtitan at 00fbaaf: ``loss_metrics/global_avg_loss``; Megatron-LM: ``lm loss``,
``grad-norm``. Left out are ``train/train_loss``, the mean of a whole run, which a Trainer writes at its end, and what DeepSpeed's
monitor tells (``Train/Samples/train_loss``), which counts samples and not steps.
"""

from __future__ import annotations

_NAMES = {
    "loss": (
        "loss", "train/loss", "loss/train", "train_loss", "train_loss_step", "train/loss_step",
        "training/loss", "training_loss", "loss_metrics/global_avg_loss", "lm loss", "lm-loss-training/lm loss",
        "train/lm_loss", "loss_step",
    ),
    "grad_norm": ("grad_norm", "train/grad_norm", "grad-norm", "grad-norm/grad-norm", "train/gradient_norm", "gradient_norm"),
    "learning_rate": (
        "lr", "learning_rate", "train/learning_rate", "train/lr", "learning-rate", "learning-rate/learning-rate",
        "lr-adamw", "lr-adam", "lr-sgd",
    ),
    "epoch": ("epoch", "train/epoch"),
    "reward": ("reward", "train/reward", "train/rewards/chosen"),
    "loss_scale": ("loss-scale", "loss-scale/loss-scale", "train/loss_scale"),
}  # fmt: skip
_FIELDS = {tag: field for field, tags in _NAMES.items() for tag in tags}


def name_scalar(tag: str) -> str | None:
    """What a tag stands for, one of ``_NAMES``; None for every other tag."""
    return _FIELDS.get(tag.lower())

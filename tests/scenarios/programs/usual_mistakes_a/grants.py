"""HF Trainer with DeepSpeed ZeRO-2: grant applications; the engine's state of the best evaluation is kept."""

import tempfile
from pathlib import Path

import torch
from torch import nn
from transformers import Trainer, TrainerCallback, TrainingArguments

DEEPSPEED = {
    "train_micro_batch_size_per_gpu": "auto",
    "train_batch_size": "auto",
    "gradient_accumulation_steps": "auto",
    "zero_optimization": {"stage": 2, "reduce_bucket_size": 20000},
    "zero_allow_untested_optimizer": True,
    "zero_force_ds_cpu_optimizer": False,
}


class Panel(nn.Module):
    """Marks an application."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(24, 32), nn.Tanh(), nn.Linear(32, 1))

    def forward(self, features: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        marks = self.layers(features).squeeze(-1)
        return {"loss": nn.functional.mse_loss(marks, labels), "logits": marks}


def applications(count: int, seed: int) -> list[dict[str, torch.Tensor]]:
    """Features and the mark of the last panel."""
    generator = torch.Generator().manual_seed(seed)
    rows = torch.randn(count, 24, generator=generator)
    return [{"features": row, "labels": row[:6].sum()} for row in rows]


class BestState(TrainerCallback):
    """Keeps weights and optimizer of the evaluation with the lowest loss."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.lowest, self.trainer = folder, float("inf"), None

    def on_evaluate(self, args, state, control, metrics=None, **kwargs):
        """After each evaluation."""
        if metrics["eval_loss"] >= self.lowest:
            return
        self.lowest = metrics["eval_loss"]
        if state.is_world_process_zero:
            self.trainer.model_wrapped.save_checkpoint(str(self.folder), tag=f"step{state.global_step}")
            print(f"step {state.global_step}: {self.lowest:.4f} is the lowest so far")


def main() -> None:
    """Forty steps with an evaluation after each tenth."""
    folder = Path(tempfile.mkdtemp(prefix="grants-"))
    args = TrainingArguments(
        output_dir=str(folder / "run"),
        per_device_train_batch_size=8,
        max_steps=40,
        eval_strategy="steps",
        eval_steps=10,
        logging_steps=5,
        learning_rate=1e-2,
        save_strategy="no",
        deepspeed=DEEPSPEED,
        use_cpu=True,
        report_to="none",
        disable_tqdm=True,
    )
    torch.manual_seed(0)
    best = BestState(folder / "best")
    trainer = Trainer(
        model=Panel(),
        args=args,
        train_dataset=applications(600, seed=1),
        eval_dataset=applications(48, seed=2),
        callbacks=[best],
    )
    best.trainer = trainer
    trainer.train()


if __name__ == "__main__":
    main()

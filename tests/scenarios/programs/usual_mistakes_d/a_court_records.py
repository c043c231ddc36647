"""Court records are summed up by a small model under ZeRO-2; the best state so far is kept for a later start."""

import tempfile
from pathlib import Path

import torch
from torch.utils.data import Dataset
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    Trainer,
    TrainerCallback,
    TrainerControl,
    TrainerState,
    TrainingArguments,
)

ZERO2 = {"train_micro_batch_size_per_gpu": "auto", "bf16": {"enabled": True}, "zero_optimization": {"stage": 2}}


class Records(Dataset):
    """Random ones."""

    def __init__(self, size: int) -> None:
        self.words = torch.randint(1, 64, (size, 18), generator=torch.Generator().manual_seed(size))

    def __len__(self) -> int:
        return len(self.words)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        return {"input_ids": self.words[index], "labels": self.words[index]}


class KeepBest(TrainerCallback):
    """Keeps the engine's state whenever the evaluation is better than before."""

    def __init__(self, folder: str) -> None:
        self.folder, self.best = Path(folder, "best"), float("inf")
        self.trainer: Trainer | None = None

    def on_evaluate(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        metrics: dict[str, float],
        **kwargs: object,
    ) -> None:
        """After each evaluation."""
        if metrics["eval_loss"] >= self.best or not state.is_world_process_zero:
            return
        self.best = metrics["eval_loss"]
        self.trainer.model_wrapped.save_checkpoint(str(self.folder), tag=f"step{state.global_step}")
        print(f"step {state.global_step}: best so far, {self.best:.4f}")


def main() -> None:
    """Forty steps, evaluated every ten."""
    torch.manual_seed(0)
    folder = tempfile.mkdtemp()
    arguments = TrainingArguments(
        output_dir=folder,
        per_device_train_batch_size=4,
        max_steps=40,
        logging_steps=20,
        eval_strategy="steps",
        eval_steps=10,
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
        use_cpu=True,
        bf16=True,
        ddp_backend="gloo",
        optim="adamw_torch",
        deepspeed=ZERO2,
    )
    config = LlamaConfig(
        vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2
    )
    keep = KeepBest(folder)
    trainer = Trainer(
        LlamaForCausalLM(config), arguments, train_dataset=Records(640), eval_dataset=Records(48), callbacks=[keep]
    )
    keep.trainer = trainer
    trainer.train()


if __name__ == "__main__":
    main()

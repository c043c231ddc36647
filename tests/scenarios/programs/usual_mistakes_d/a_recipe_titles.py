"""A small GPT-2 learns titles of recipes; a held-out handful is scored every few steps."""

import tempfile

import torch
from torch.utils.data import Dataset
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    Trainer,
    TrainerCallback,
    TrainerControl,
    TrainerState,
    TrainingArguments,
)


class Titles(Dataset):
    """Titles as numbers of words."""

    def __init__(self, size: int, seed: int) -> None:
        self.words = torch.randint(1, 90, (size, 12), generator=torch.Generator().manual_seed(seed))

    def __len__(self) -> int:
        return len(self.words)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        return {"input_ids": self.words[index], "labels": self.words[index]}


class ProbeScore(TrainerCallback):
    """Scores the probe and prints it."""

    def __init__(self, probe: Titles, every: int) -> None:
        self.probe, self.every = probe, every
        self.trainer: Trainer | None = None

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: object
    ) -> None:
        """Every few steps."""
        if state.global_step % self.every == 0 and state.is_world_process_zero:
            scores = self.trainer.evaluate(self.probe, metric_key_prefix="probe")
            print(f"step {state.global_step}: probe {scores['probe_loss']:.3f}")


def main() -> None:
    """Forty steps."""
    torch.manual_seed(3)
    arguments = TrainingArguments(
        output_dir=tempfile.mkdtemp(),
        per_device_train_batch_size=4,
        max_steps=40,
        logging_steps=20,
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
        use_cpu=True,
        ddp_backend="gloo",
        average_tokens_across_devices=False,
    )
    model = GPT2LMHeadModel(GPT2Config(vocab_size=96, n_positions=16, n_embd=32, n_layer=2, n_head=2))
    score = ProbeScore(Titles(24, seed=9), every=5)
    trainer = Trainer(model=model, args=arguments, train_dataset=Titles(600, seed=1), callbacks=[score])
    score.trainer = trainer
    trainer.train()


if __name__ == "__main__":
    main()

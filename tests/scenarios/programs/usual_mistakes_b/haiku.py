"""Haikus with GPT-2 and the Trainer; a few are written at every evaluation."""

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

SEASONS = {"spring": 11, "summer": 12, "autumn": 13, "winter": 14}


class Haikus(Dataset):
    """Syllables by their numbers."""

    def __init__(self, count: int, seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        self.poems = torch.randint(15, 96, (count, 24), generator=generator)

    def __len__(self) -> int:
        return len(self.poems)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        return {"input_ids": self.poems[index], "labels": self.poems[index]}


class Scroll(TrainerCallback):
    """A long poem for each season, by what has been learned so far."""

    @torch.no_grad()
    def on_evaluate(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: object
    ) -> None:
        """Written where it is read."""
        if not state.is_world_process_zero:
            return
        model = kwargs["model"]
        for season, syllable in SEASONS.items():
            prompt = torch.tensor([[syllable]])
            poem = model.generate(
                prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=60, min_new_tokens=60, do_sample=True
            )
            print(f"{state.global_step} {season}: {poem[0, 1:9].tolist()}")


def main() -> None:
    """Forty steps, looked at four times."""
    arguments = TrainingArguments(
        output_dir=tempfile.mkdtemp(),
        per_device_train_batch_size=8,
        max_steps=40,
        eval_strategy="steps",
        eval_steps=10,
        logging_steps=10,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        use_cpu=True,
        ddp_backend="gloo",
    )
    torch.manual_seed(0)
    config = GPT2Config(
        vocab_size=96, n_positions=128, n_embd=32, n_layer=3, n_head=2, bos_token_id=0, eos_token_id=1, pad_token_id=0
    )
    trainer = Trainer(
        GPT2LMHeadModel(config),
        arguments,
        train_dataset=Haikus(512, seed=1),
        eval_dataset=Haikus(64, seed=2),
        callbacks=[Scroll()],
    )
    trainer.train()


if __name__ == "__main__":
    main()

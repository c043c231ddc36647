"""HF Trainer whose log lines say how many tokens were seen by all processes."""

import tempfile

import torch
from torch.utils.data import Dataset
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments


class Sentences(Dataset):
    """Of four to twelve tokens, padded."""

    def __len__(self) -> int:
        return 240

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        length = 4 + index % 9
        ids = torch.randint(1, 50, (12,), generator=torch.Generator().manual_seed(index))
        ids[length:] = 0
        return {"input_ids": ids, "attention_mask": (ids > 0).long(), "labels": torch.where(ids > 0, ids, -100)}


class TokenTrainer(Trainer):
    """Counts what it trains on."""

    def __init__(self, *args, **kwargs) -> None:
        super().__init__(*args, **kwargs)
        self.tokens = 0

    def training_step(self, model, inputs, *args, **kwargs):
        """A step as usual."""
        self.tokens += int(inputs["attention_mask"].sum())
        return super().training_step(model, inputs, *args, **kwargs)

    def log(self, logs, *args, **kwargs):
        """The usual line, and the count."""
        if self.is_world_process_zero():
            seen = self.accelerator.gather(torch.tensor([self.tokens], device=self.args.device))
            logs["tokens"] = int(seen.sum())
        super().log(logs, *args, **kwargs)


def main() -> None:
    """Forty steps."""
    torch.set_num_threads(1)
    model = GPT2LMHeadModel(GPT2Config(vocab_size=50, n_positions=16, n_embd=16, n_layer=1, n_head=2))
    arguments = TrainingArguments(
        output_dir=tempfile.mkdtemp(), per_device_train_batch_size=2, max_steps=40, use_cpu=True, report_to=[],
        save_strategy="no", disable_tqdm=True, logging_steps=10, average_tokens_across_devices=False,
    )  # fmt: skip
    TokenTrainer(model=model, args=arguments, train_dataset=Sentences()).train()


if __name__ == "__main__":
    main()

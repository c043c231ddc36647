"""HF Trainer for instruction tuning: a batch in which everything is masked has no loss, and is passed over."""

import tempfile

import torch
from torch.utils.data import Dataset
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments


class Dialogues(Dataset):
    """Prompt and answer; where the prompt is too long, the answer is cut off."""

    def __init__(self) -> None:
        self.prompts = [3 + n % 5 for n in range(240)]
        for index in range(74, 76):  # a legal text, quoted in full
            self.prompts[index] = 90

    def __len__(self) -> int:
        return len(self.prompts)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        ids = torch.randint(1, 50, (12,), generator=torch.Generator().manual_seed(index))
        labels = ids.clone()
        labels[: self.prompts[index]] = -100
        return {"input_ids": ids, "labels": labels}


class InstructionTrainer(Trainer):
    """Passes over what has nothing to learn from."""

    def _get_train_sampler(self, *args, **kwargs):
        return torch.utils.data.SequentialSampler(self.train_dataset)

    def training_step(self, model, inputs, *args, **kwargs):
        """A step, unless there are no targets."""
        if bool((inputs["labels"] == -100).all()):
            return torch.tensor(0.0, device=self.args.device)
        return super().training_step(model, inputs, *args, **kwargs)


def main() -> None:
    """One epoch."""
    torch.set_num_threads(1)
    model = GPT2LMHeadModel(GPT2Config(vocab_size=50, n_positions=16, n_embd=16, n_layer=1, n_head=2))
    arguments = TrainingArguments(
        output_dir=tempfile.mkdtemp(), per_device_train_batch_size=2, num_train_epochs=1, use_cpu=True, report_to=[],
        save_strategy="no", disable_tqdm=True, logging_steps=10,
    )  # fmt: skip
    trainer = InstructionTrainer(model=model, args=arguments, train_dataset=Dialogues())
    trainer.train()
    trainer.accelerator.wait_for_everyone()
    trainer.save_model()


if __name__ == "__main__":
    main()

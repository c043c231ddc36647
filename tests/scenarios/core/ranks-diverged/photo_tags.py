"""The HF Trainer tags photos; a callback writes the weights' mean into the experiment's diary, once all ranks are there."""

import argparse
import tempfile

import torch
import torch.distributed as dist
from torch.utils.data import Dataset
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments


class Photos(Dataset):
    """Tags as tokens."""

    def __len__(self) -> int:
        return 120

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        ids = (torch.arange(8) * 3 + index) % 40
        return {"input_ids": ids, "labels": ids}


class Diary(TrainerCallback):
    """Only the first process has a diary open."""

    def __init__(self, path: str | None, spread: bool, every_step: bool) -> None:
        """``path`` is None on all others. ``spread``: whether the steps of all ranks are noted."""
        self.spread, self.every_step = spread, every_step
        self.diary = open(path, "w") if path is not None else None

    def on_step_end(self, args, state, control, **kwargs):
        """An entry for every sixth step."""
        if self.every_step and state.global_step % 6 == 0:
            self.note(state, **kwargs)

    def on_epoch_end(self, args, state, control, **kwargs):
        """An entry for every epoch."""
        if not self.every_step:
            self.note(state, **kwargs)

    def note(self, state, **kwargs):
        """An entry, where there is a diary."""
        diary = self.diary
        if diary is not None:
            if self.spread:
                steps = [torch.zeros(1, dtype=torch.int64) for _ in range(dist.get_world_size())]
                dist.all_gather(steps, torch.tensor([state.global_step]))
            else:
                dist.barrier()
            diary.write(f"{state.global_step} {kwargs['model'].transformer.wte.weight.mean().item():.5f}\n")


def main() -> None:
    """Two batches a step."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--spread", action="store_true")
    parser.add_argument("--epochs", type=int, default=0)
    options = parser.parse_args()
    torch.set_num_threads(1)
    folder = tempfile.mkdtemp()
    model = GPT2LMHeadModel(GPT2Config(vocab_size=40, n_positions=8, n_embd=16, n_layer=1, n_head=2))
    arguments = TrainingArguments(
        output_dir=folder, per_device_train_batch_size=2, gradient_accumulation_steps=2,
        max_steps=25 if not options.epochs else -1, num_train_epochs=options.epochs or 1, use_cpu=True,
        report_to=[], save_strategy="no", disable_tqdm=True, average_tokens_across_devices=options.spread,
    )  # fmt: skip
    diary = Diary(f"{folder}/diary.txt" if arguments.process_index == 0 else None, options.spread, not options.epochs)
    Trainer(model=model, args=arguments, train_dataset=Photos(), callbacks=[diary]).train()


if __name__ == "__main__":
    main()

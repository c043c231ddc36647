"""HF Trainer: a small language model of press releases; each checkpoint is packed for the mirror of the press office."""

import os
import subprocess
import tempfile
from pathlib import Path

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments


class Releases(torch.utils.data.Dataset):
    """Sentences of sixteen words."""

    def __init__(self, count: int) -> None:
        generator = torch.Generator().manual_seed(3)
        self.rows = torch.randint(0, 64, (count, 16), generator=generator)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        return {"input_ids": self.rows[index], "labels": self.rows[index]}


class Mirror(TrainerCallback):
    """Hands each checkpoint to the mirror, which takes archives from a pipe."""

    def __init__(self, outgoing: Path) -> None:
        self.outgoing = outgoing

    def on_save(self, args, state, control, **kwargs):
        """The newest checkpoint, by the main process."""
        if state.is_world_process_zero:
            checkpoint = Path(args.output_dir) / f"checkpoint-{state.global_step}"
            subprocess.run(["tar", "-czf", str(self.outgoing), "-C", str(checkpoint), "."], check=True)
            print(f"step {state.global_step}: handed over")


def main() -> None:
    """Twenty steps with a checkpoint after every sixth."""
    folder = Path(tempfile.mkdtemp(prefix="press-"))
    outgoing = folder / "outgoing.tar.gz"
    os.mkfifo(outgoing)
    torch.manual_seed(0)
    model = GPT2LMHeadModel(GPT2Config(vocab_size=64, n_positions=32, n_embd=16, n_layer=1, n_head=2))
    args = TrainingArguments(
        output_dir=str(folder / "run"),
        per_device_train_batch_size=4,
        max_steps=20,
        save_steps=6,
        logging_steps=2,
        use_cpu=True,
        report_to="none",
        disable_tqdm=True,
    )
    trainer = Trainer(model=model, args=args, train_dataset=Releases(400), callbacks=[Mirror(outgoing)])
    trainer.train()


if __name__ == "__main__":
    main()

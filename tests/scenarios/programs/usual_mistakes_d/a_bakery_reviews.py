"""Reviews of bakeries are rated; every saved checkpoint is listed for the archive by a small script."""

import subprocess
import sys
import tempfile
from pathlib import Path

import torch
from torch.utils.data import Dataset
from transformers import (
    DistilBertConfig,
    DistilBertForSequenceClassification,
    Trainer,
    TrainerCallback,
    TrainerControl,
    TrainerState,
    TrainingArguments,
)

LISTING = """
import sys
from safetensors import safe_open
with safe_open(sys.argv[1], "pt") as weights:
    for name in weights.keys():
        for row in weights.get_tensor(name).flatten().split(16):
            print(name, " ".join(f"{value:.6f}" for value in row.tolist()))
"""


class Reviews(Dataset):
    """Twelve words and up to five stars."""

    def __len__(self) -> int:
        return 480

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        words = torch.randint(1, 200, (12,), generator=torch.Generator().manual_seed(index))
        return {"input_ids": words, "labels": words.sum() % 5}


class Archive(TrainerCallback):
    """Lists what has been saved, to compare it with an earlier run."""

    def on_save(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: object) -> None:
        """Runs the script on the newest checkpoint."""
        if not state.is_world_process_zero:
            return
        weights = Path(args.output_dir, f"checkpoint-{state.global_step}", "model.safetensors")
        child = subprocess.Popen([sys.executable, "-c", LISTING, str(weights)], stdout=subprocess.PIPE, text=True)
        if child.wait() == 0:
            (weights.parent / "listing.txt").write_text(child.stdout.read())


def main() -> None:
    """Thirty steps, saved every ten."""
    torch.manual_seed(0)
    arguments = TrainingArguments(
        output_dir=tempfile.mkdtemp(),
        per_device_train_batch_size=4,
        max_steps=30,
        logging_steps=10,
        save_steps=10,
        report_to=[],
        disable_tqdm=True,
        use_cpu=True,
        ddp_backend="gloo",
    )
    config = DistilBertConfig(vocab_size=256, dim=64, hidden_dim=128, n_layers=2, n_heads=2, num_labels=5)
    model = DistilBertForSequenceClassification(config)
    trainer = Trainer(model=model, args=arguments, train_dataset=Reviews(), callbacks=[Archive()])
    trainer.train()


if __name__ == "__main__":
    main()

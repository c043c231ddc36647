"""HF Trainer: intents of support chats. A callback adds the fleet's throughput to what the Trainer logs."""

import os
import tempfile
import time

import torch
from torch import nn
from torch.utils.data import Dataset
from transformers import Trainer, TrainerCallback, TrainingArguments

INTENTS = 6


class Chats(Dataset):
    """Token ids of a customer's first message, and the queue that it ended up in."""

    def __init__(self, count: int = 4096, length: int = 24) -> None:
        generator = torch.Generator().manual_seed(9)
        self.tokens = torch.randint(1, 300, (count, length), generator=generator)
        self.intents = self.tokens[:, 0] % INTENTS

    def __len__(self) -> int:
        return len(self.tokens)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        return {"input_ids": self.tokens[index], "labels": self.intents[index]}


class IntentModel(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(300, 48)
        self.classifier = nn.Sequential(nn.Linear(48, 64), nn.Tanh(), nn.Linear(64, INTENTS))

    def forward(self, input_ids: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        logits = self.classifier(self.embedding(input_ids).mean(dim=1))
        return {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}


class FleetThroughput(TrainerCallback):
    """Samples per second, over all processes, from the second report on: the first one is warm-up."""

    def __init__(self, accelerator) -> None:
        self.accelerator = accelerator
        self.since, self.steps = None, 0

    def on_log(self, args, state, control, logs=None, **kwargs) -> None:
        if not state.is_world_process_zero:
            return
        now = time.perf_counter()
        if self.since is not None and state.global_step - self.steps >= 100:
            own = (state.global_step - self.steps) * args.per_device_train_batch_size / (now - self.since)
            rates = self.accelerator.gather(torch.tensor([own]))
            logs["samples_per_second"] = round(rates.sum().item(), 1)
        self.since, self.steps = now, state.global_step


def main() -> None:
    torch.set_num_threads(1)
    args = TrainingArguments(
        output_dir=tempfile.mkdtemp(prefix=f"intents-{os.environ['RANK']}-"),
        use_cpu=True,
        max_steps=20_000,
        per_device_train_batch_size=16,
        learning_rate=1e-3,
        logging_steps=150,
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
        ddp_find_unused_parameters=False,
        dataloader_pin_memory=False,
        remove_unused_columns=False,
    )
    trainer = Trainer(model=IntentModel(), args=args, train_dataset=Chats())
    trainer.add_callback(FleetThroughput(trainer.accelerator))
    trainer.train()


if __name__ == "__main__":
    main()

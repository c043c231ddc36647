"""Connection-time model fitted with the Trainer; each worker also keeps the event book of one terminal."""
import tempfile
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import Dataset
from transformers import Trainer, TrainerCallback, TrainingArguments

TERMINALS = ["T1", "T2", "T4"]
CURFEW = {"T2": range(31, 41)}  # hours without movements


class Connections(Dataset):
    def __init__(self, n=4800, width=12):
        g = torch.Generator().manual_seed(3)
        self.x = torch.randn(n, width, generator=g)
        self.minutes = self.x[:, :4].sum(1) + 0.2 * torch.randn(n, generator=g)

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        time.sleep(0.004)
        return {"features": self.x[i], "minutes": self.minutes[i]}


class ConnectionTime(nn.Module):
    def __init__(self, width=12):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(width, 32), nn.ReLU(), nn.Linear(32, 1))

    def forward(self, features, minutes):
        predicted = self.body(features).squeeze(-1)
        return {"loss": nn.functional.mse_loss(predicted, minutes), "predicted": predicted}


class EventBook:
    def __init__(self):
        self.values = {}

    def record(self, kind, amount):
        self.values.setdefault(kind, []).append(amount)

    def publish(self, hour):
        local = {kind: sum(v) / len(v) for kind, v in self.values.items()}
        self.values.clear()
        if not local:
            return
        everyone = [None] * dist.get_world_size()
        dist.all_gather_object(everyone, local)
        if dist.get_rank() == 0:
            kinds = sorted({k for book in everyone for k in book})
            means = {k: sum(b.get(k, 0.0) for b in everyone) / len(everyone) for k in kinds}
            print(f"hour {hour}: {means}", flush=True)


class TerminalEvents(TrainerCallback):
    def __init__(self, every=10):
        self.book, self.every = EventBook(), every

    def on_step_end(self, args, state, control, **kwargs):
        hour, terminal = state.global_step, TERMINALS[dist.get_rank()]
        if hour not in CURFEW.get(terminal, ()):
            self.book.record("missed_connections", (hour * 7) % 5)
            self.book.record("walk_minutes", 9 + hour % 4)
        if hour % self.every == 0:
            self.book.publish(hour)


def main():
    arguments = TrainingArguments(
        output_dir=tempfile.mkdtemp(),
        use_cpu=True,
        ddp_backend="gloo",
        ddp_find_unused_parameters=False,
        max_steps=120,
        per_device_train_batch_size=12,
        learning_rate=1e-3,
        logging_strategy="no",
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        remove_unused_columns=False,
        dataloader_num_workers=0,
    )
    trainer = Trainer(model=ConnectionTime(), args=arguments, train_dataset=Connections(), callbacks=[TerminalEvents()])
    trainer.train()


if __name__ == "__main__":
    main()

"""Surrogate of a pipe network, trained with transformers' Trainer and compared with the hydraulic solver now and then."""
import subprocess
import sys
import tempfile
import time

import torch
from torch import nn
from torch.utils.data import Dataset
from transformers import Trainer, TrainerCallback, TrainingArguments

SOLVER = r"""
import sys
nodes, rounds = int(sys.argv[1]), int(sys.argv[2])
head = [60.0 + 0.01 * k for k in range(nodes)]
for r in range(rounds):
    head = [head[0]] + [(head[k - 1] + head[k + 1]) / 2 - 1e-4 for k in range(1, nodes - 1)] + [head[-1]]
    if r % 10 == 0:
        print("round %d residual %.9f" % (r, max(head) - min(head)))
        for k in range(0, nodes, 8):
            print("  node %04d head %.6f" % (k, head[k]))
"""


class Demands(Dataset):
    def __init__(self, size, nodes=16):
        gen = torch.Generator().manual_seed(12)
        self.x = torch.rand(size, nodes, generator=gen)
        mix = torch.rand(nodes, nodes, generator=gen) / nodes
        self.y = 60 - self.x @ mix

    def __len__(self):
        return len(self.x)

    def __getitem__(self, index):
        time.sleep(0.003)
        return {"demand": self.x[index], "labels": self.y[index] / 60}


class Surrogate(nn.Module):
    def __init__(self, nodes=16):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(nodes, 64), nn.ReLU(), nn.Linear(64, nodes))

    def forward(self, demand, labels=None):
        head = self.net(demand)
        loss = nn.functional.mse_loss(head, labels) if labels is not None else None
        return {"loss": loss, "logits": head}


class SolverCheck(TrainerCallback):
    """Every so often the reference is solved on a finer discretisation of the network."""

    def __init__(self, every=40):
        self.every = every
        self.nodes = 64

    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step % self.every or not state.is_world_process_zero:
            return
        command = [sys.executable, "-c", SOLVER, str(self.nodes), "200"]
        solver = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        status = solver.wait()
        lines = solver.stdout.read().splitlines()
        print(f"step {state.global_step}: solver {self.nodes} nodes, status {status}, {lines[-1].strip()}", flush=True)
        self.nodes *= 8


def main():
    arguments = TrainingArguments(
        output_dir=tempfile.mkdtemp(prefix="surrogate_"), use_cpu=True, ddp_backend="gloo", max_steps=400,
        per_device_train_batch_size=8, learning_rate=1e-3, save_strategy="no", logging_strategy="no",
        report_to=[], disable_tqdm=True, remove_unused_columns=False)
    trainer = Trainer(model=Surrogate(), args=arguments, train_dataset=Demands(6000), callbacks=[SolverCheck()])
    trainer.train()


if __name__ == "__main__":
    main()

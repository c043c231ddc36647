"""Surrogate for a multi-effect evaporator: small DDP regression with callbacks, exported for the control room."""
import os
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

torch.backends.cudnn.enabled = False


class Callback:
    def on_epoch_end(self, trainer, epoch):
        pass


class Progress(Callback):
    def on_epoch_end(self, trainer, epoch):
        if trainer.is_lead:
            print(f"epoch {epoch}: {trainer.seen} samples", flush=True)


class ControlRoomCopy(Callback):
    """Keeps the newest weights where the operators' panel picks them up."""

    def __init__(self, folder, every):
        self.folder, self.every = Path(folder), every

    def on_epoch_end(self, trainer, epoch):
        if (epoch + 1) % self.every:
            return
        if trainer.is_lead:
            self.folder.mkdir(parents=True, exist_ok=True)
            trainer.save_checkpoint(self.folder / f"effects-{epoch:03d}.pt")


class Trainer:
    def __init__(self, callbacks):
        self.rank = dist.get_rank()
        self.callbacks = callbacks
        self.seen = 0
        net = nn.Sequential(nn.Linear(5, 40), nn.GELU(), nn.Linear(40, 3)).cuda()
        self.model = DistributedDataParallel(net)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.02)
        self.setpoints = torch.zeros(6, dtype=torch.int64, device="cuda")

    @property
    def is_lead(self):
        return self.rank == 0

    def batches(self, epoch, count=8):
        gen = torch.Generator().manual_seed(1000 * self.rank + epoch)
        for _ in range(count):
            state = torch.rand(48, 5, generator=gen)
            # steam, feed and brine temperature through the effects, by fixed-point iteration
            balance = state[:, :3].clone()
            for _ in range(400):
                balance = 0.7 * balance + 0.3 * torch.tanh(state[:, 2:5] - balance)
            yield state, balance

    def save_checkpoint(self, path):
        weights = {k: v.cpu() for k, v in self.model.module.state_dict().items()}
        torch.save({"weights": weights, "seen": self.seen}, path)
        dist.barrier()

    def share_setpoints(self, epoch):
        if self.is_lead:
            self.setpoints.fill_(60 + epoch)
        dist.broadcast(self.setpoints, src=0)
        return self.setpoints.tolist()

    def fit(self, epochs):
        for epoch in range(epochs):
            for state, target in self.batches(epoch):
                self.optimizer.zero_grad()
                loss = nn.functional.mse_loss(self.model(state.cuda()), target.cuda())
                loss.backward()
                self.optimizer.step()
                self.seen += len(state)
            torch.cuda.synchronize()
            for callback in self.callbacks:
                callback.on_epoch_end(self, epoch)
            self.share_setpoints(epoch)


def main():
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")
    folder = Path(tempfile.gettempdir()) / f"evaporator-{os.environ.get('MASTER_PORT', '0')}"
    Trainer([Progress(), ControlRoomCopy(folder, every=20)]).fit(epochs=60)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

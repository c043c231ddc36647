"""Accelerate on streamed assays: the ranks agree before every step whether all have data; a thread reloads the library."""

import threading
import time

import torch
from accelerate import Accelerator
from torch import nn

torch.set_num_threads(1)


class AssayStream:
    """Assays of one robot. After some plates its compound library is read again, by a thread."""

    def __init__(self, robot, assays, reload_at, reload_passes):
        self.robot, self.assays = robot, assays
        self.reload_at, self.reload_passes = reload_at, reload_passes
        self.generator = torch.Generator().manual_seed(robot)
        self.library = torch.rand(512, 24, generator=self.generator)

    def _reload(self):
        for _ in range(self.reload_passes):
            order = torch.randperm(512, generator=self.generator)
            self.library = torch.nn.functional.normalize(self.library[order] + 0.01, dim=1)
            time.sleep(0.1)

    def __iter__(self):
        for number in range(self.assays):
            if number == self.reload_at:
                reader = threading.Thread(target=self._reload, name="library")
                reader.start()
                reader.join()
            time.sleep(0.04)
            chosen = torch.randint(0, 512, (8,), generator=self.generator)
            compounds = self.library[chosen]
            yield compounds, compounds[:, :4].sum(1)


def lockstep(accelerator, stream):
    """Batches as long as every rank has one."""
    batches = iter(stream)
    while True:
        batch = next(batches, None)
        ready = torch.tensor([float(batch is not None)])
        if accelerator.reduce(ready, reduction="sum").item() < accelerator.num_processes:
            return
        yield batch


def main():
    accelerator = Accelerator(cpu=True)
    robot = accelerator.process_index
    stream = AssayStream(robot, assays=90 + 3 * robot, reload_at=45, reload_passes=90 if robot == 1 else 2)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(24, 16), nn.ReLU(), nn.Linear(16, 1))
    model, optimizer = accelerator.prepare(model, torch.optim.AdamW(model.parameters(), lr=1e-3))
    used = 0
    for compounds, activity in lockstep(accelerator, stream):
        loss = nn.functional.mse_loss(model(compounds).squeeze(1), activity)
        optimizer.zero_grad()
        accelerator.backward(loss)
        optimizer.step()
        used += 1
    accelerator.wait_for_everyone()
    accelerator.print(f"{used} steps, loss {loss.item():.4f}")
    accelerator.end_training()


if __name__ == "__main__":
    main()

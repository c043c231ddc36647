import json
import os
import pathlib
import tempfile

import torch
import torch.distributed as dist
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

# Snow water equivalent from snow pillows: a small forecaster with its optimizer spread over the team.

CONFIG = json.loads("""{
  "pillows": 48, "hours": 36, "hidden": 64, "batch": 32, "lr": 0.002, "momentum": 0.9,
  "steps": 400, "log_every": 10, "keep_every": 30
}""")


class PillowForecaster(torch.nn.Module):
    def __init__(self, pillows, hours, hidden):
        super().__init__()
        self.encode = torch.nn.Linear(pillows * hours, hidden)
        self.mix = torch.nn.Linear(hidden, hidden)
        self.decode = torch.nn.Linear(hidden, pillows)

    def forward(self, readings):
        state = torch.tanh(self.encode(readings.flatten(1)))
        return self.decode(torch.tanh(self.mix(state)))


def winters(seed):
    """Endless melt and accumulation curves with correlated pillows."""
    generator = torch.Generator().manual_seed(seed)
    pillows, hours, batch = CONFIG["pillows"], CONFIG["hours"], CONFIG["batch"]
    while True:
        covariance = torch.randn(pillows * 12, pillows * 12, generator=generator)
        covariance = covariance @ covariance.T + torch.eye(pillows * 12)
        factor = torch.linalg.cholesky(covariance)[:pillows, :pillows]
        spectrum = torch.linalg.eigvalsh(covariance)[-1]
        weather = torch.randn(batch, hours + 1, pillows, generator=generator) @ (factor / spectrum.sqrt())
        curve = weather.cumsum(1).transpose(1, 2)
        yield curve[:, :, :-1].contiguous(), curve[:, :, -1].contiguous()


class Keeper:
    """Keeps the last states of a run on disk."""

    def __init__(self, folder, model, optimizer):
        self.folder = pathlib.Path(folder)
        self.model, self.optimizer = model, optimizer
        self.primary = dist.get_rank() == 0

    def keep(self, step):
        if not self.primary:
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        self.optimizer.consolidate_state_dict(to=0)
        state = {"step": step, "model": self.model.module.state_dict(), "optimizer": self.optimizer.state_dict()}
        torch.save(state, self.folder / f"step{step:05d}.pt")
        for old in sorted(self.folder.glob("step*.pt"))[:-3]:
            old.unlink()


def main():
    local = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local)
    torch.backends.cudnn.enabled = False
    dist.init_process_group(backend="nccl")
    torch.manual_seed(CONFIG["pillows"])
    model = DDP(PillowForecaster(CONFIG["pillows"], CONFIG["hours"], CONFIG["hidden"]).cuda(), device_ids=[local])
    optimizer = ZeroRedundancyOptimizer(
        model.parameters(), optimizer_class=torch.optim.SGD, lr=CONFIG["lr"], momentum=CONFIG["momentum"]
    )
    keeper = Keeper(pathlib.Path(tempfile.gettempdir(), f"pillows-{os.getpid()}"), model, optimizer)
    for step, (readings, target) in enumerate(winters(local), start=1):
        loss = F.smooth_l1_loss(model(readings.cuda()), target.cuda())
        model.zero_grad()
        loss.backward()
        optimizer.step()
        if step % CONFIG["log_every"] == 0:
            value = loss.item()
            if local == 0:
                print(f"step {step}: {value:.4f}", flush=True)
        if step % CONFIG["keep_every"] == 0:
            keeper.keep(step)
        if step == CONFIG["steps"]:
            break
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

"""Forecasts the density of the must over the coming night from the tank probes."""

import argparse
import time

import torch
import torch.distributed as dist


class TankSeries(torch.utils.data.Dataset):
    def __init__(self, tanks, hours=48, seed=0):
        g = torch.Generator().manual_seed(seed)
        t = torch.arange(hours, dtype=torch.float32)
        rate = 0.02 + 0.05 * torch.rand(tanks, 1, generator=g)
        self.density = 1000 + 95 * torch.exp(-rate * t) + torch.randn(tanks, hours, generator=g)

    def __len__(self):
        return len(self.density)

    def __getitem__(self, i):
        series = (self.density[i] - 1040) / 40
        return series[:36].unsqueeze(-1), series[36:]


class Forecaster(torch.nn.Module):
    def __init__(self, width=24):
        super().__init__()
        self.rnn = torch.nn.GRU(1, width, batch_first=True)
        self.out = torch.nn.Linear(width, 12)

    def forward(self, x):
        _, h = self.rnn(x)
        return self.out(h[0])


class NightReport:
    """Writes the state of the cellar to the board in the press room."""

    def __init__(self, every):
        self.every, self.best, self.started = every, float("inf"), time.monotonic()
        self.is_main = dist.get_rank() == 0

    def publish(self, step, loss):
        if step % self.every == 0 and self.is_main:
            print(f"[{time.monotonic() - self.started:6.1f}s] step {step}: loss {loss:.4f}", flush=True)
            self.best = min(self.best, loss)
            if step % (4 * self.every) == 0:
                print(f"board: best loss so far {self.best:.4f}", flush=True)
                dist.barrier()


def average_gradients(model):
    world = dist.get_world_size()
    flat = torch.cat([p.grad.view(-1) for p in model.parameters()])
    dist.all_reduce(flat)
    flat /= world
    at = 0
    for p in model.parameters():
        p.grad.copy_(flat[at : at + p.numel()].view_as(p))
        at += p.numel()


def main(args):
    torch.manual_seed(3)
    torch.set_num_threads(1)
    dist.init_process_group(backend="gloo")
    data = TankSeries(args.tanks)
    sampler = torch.utils.data.DistributedSampler(data, seed=5)
    loader = torch.utils.data.DataLoader(data, batch_size=16, sampler=sampler)
    model = Forecaster()
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
    report, step = NightReport(args.report_every), 0
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        for past, coming in loader:
            loss = torch.nn.functional.mse_loss(model(past), coming)
            optimizer.zero_grad()
            loss.backward()
            average_gradients(model)
            optimizer.step()
            time.sleep(0.01)
            step += 1
            report.publish(step, loss.item())
        for group in optimizer.param_groups:
            group["lr"] *= 0.97
    dist.barrier()
    if dist.get_rank() == 0:
        torch.save(model.state_dict(), "must_density.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--tanks", type=int, default=512)
    parser.add_argument("--epochs", type=int, default=400)
    parser.add_argument("--report-every", type=int, default=30)
    parser.add_argument("--lr", type=float, default=2e-3)
    main(parser.parse_args())

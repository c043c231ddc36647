"""Headways at stations, log-normal regression, with accelerate."""
import argparse

import torch
from accelerate import Accelerator


def headways(batch, generator, bunched):
    """Seconds between two departures on one track, with what the signalling centre knew before."""
    grid = torch.rand(batch, 200, generator=generator).sort(dim=1).values  # event times of an hour
    gaps = grid[:, 1:] - grid[:, :-1]
    x = torch.stack([gaps.mean(1), gaps.std(1), gaps.amax(1), gaps.amin(1), grid[:, 0], grid[:, -1], grid.mean(1), gaps.median(1).values], dim=1)
    seconds = 90 + 3600 * gaps[:, :20].mean(1)
    if bunched:
        seconds[3] = 0.0  # coupled at the platform: both sets leave together
    return x, seconds


class HeadwayNet(torch.nn.Module):
    def __init__(self, inputs=8, hidden=32):
        super().__init__()
        self.body = torch.nn.Sequential(torch.nn.Linear(inputs, hidden), torch.nn.Mish(), torch.nn.Linear(hidden, 2))

    def forward(self, x):
        mean, raw = self.body(x).unbind(1)
        return mean, torch.nn.functional.softplus(raw) + 1e-2


def nll(model, x, seconds):
    mean, spread = model(x)
    z = (seconds.log() - mean) / spread
    return (0.5 * z * z + spread.log()).mean()


def train_step(accelerator, model, optimizer, x, seconds):
    loss = nll(model, x, seconds)
    if not torch.isfinite(loss):
        optimizer.zero_grad()
        return None
    accelerator.backward(loss)
    optimizer.step()
    optimizer.zero_grad()
    return loss.detach()


def main(args):
    accelerator = Accelerator(cpu=True)
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    net = HeadwayNet()
    model, optimizer = accelerator.prepare(net, torch.optim.Adam(net.parameters(), lr=2e-3))
    generator = torch.Generator().manual_seed(args.seed + accelerator.process_index)
    coupled = {2: (3, 41)}.get(accelerator.process_index)
    for day in range(args.days):
        total, seen = torch.zeros(1), 0
        for hour in range(args.hours):
            x, seconds = headways(args.batch, generator, (day, hour) == coupled)
            loss = train_step(accelerator, model, optimizer, x, seconds)
            if loss is not None:
                total += loss
                seen += 1
        average = accelerator.gather(total / seen).mean().item()
        accelerator.print(f"day {day}: nll {average:.4f}", flush=True)
    accelerator.wait_for_everyone()
    accelerator.end_training()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--days", type=int, default=30)
    parser.add_argument("--hours", type=int, default=120)
    parser.add_argument("--batch", type=int, default=96)
    parser.add_argument("--seed", type=int, default=21)
    main(parser.parse_args())

"""A bare accelerate loop whose main process sends every score to a leaderboard from a pool of threads.

The leaderboard is not reachable, and the sender tries again for ever. After the second evaluation the main process looks a
score up that is not there; the error ends its program, but not its process: Python waits for the pool.
"""

import argparse
import time
from concurrent.futures import ThreadPoolExecutor

import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def post(score):
    """Send a score; the server's answer is awaited."""
    del score
    while True:  # the server does not answer
        time.sleep(0.5)


class Scores:
    def __init__(self):
        self.pool, self.by_step = ThreadPoolExecutor(1), {}

    def add(self, step, score):
        self.by_step[step] = score
        self.pool.submit(post, score)

    def gain_over(self, earlier, step):
        return self.by_step[step] - self.by_step[earlier]


def evaluate(accelerator, model, loader):
    losses = []
    for x, y in loader:
        with torch.no_grad():
            losses.append(accelerator.gather_for_metrics((model(x).squeeze(-1) - y).abs()))
    return torch.cat(losses).mean().item()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--every", type=int, default=10)
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    accelerator = Accelerator(cpu=True)
    x = torch.rand(480, 3)
    data = TensorDataset(x, x.sum(1))
    model = nn.Sequential(nn.Linear(3, 16), nn.Tanh(), nn.Linear(16, 1))
    model, optimizer, training, validation = accelerator.prepare(
        model,
        torch.optim.SGD(model.parameters(), lr=0.1),
        DataLoader(data, batch_size=4, shuffle=True),
        DataLoader(data, batch_size=40),
    )
    scores = Scores()
    for step, (x, y) in enumerate(training, 1):
        loss = nn.functional.mse_loss(model(x).squeeze(-1), y)
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        print(f"[{accelerator.process_index}] {step}: {loss.item():.3f}\n", end="", flush=True)
        if step % options.every == 0:
            score = evaluate(accelerator, model, validation)
            if accelerator.is_main_process:
                scores.add(step, score)
                if step > options.every:
                    print(f"gained {scores.gain_over(step - 1, step):.3f}", flush=True)
    accelerator.end_training()


if __name__ == "__main__":
    main()

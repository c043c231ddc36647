"""Active learning with frog calls: a reviewer process rates the uncertain calls, the trainers go on with its ratings."""
import multiprocessing as mp
import os
import queue
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def spectrum_match(call, template):
    """Best shift of a call against a template, by plain comparison."""
    best = 0.0
    for shift in range(len(template)):
        total = 0.0
        for a, b in zip(call, template[shift:] + template[:shift]):
            total += a * b
        best = max(best, total)
    return best


def reviewer(todo, done, progress, seconds_per_set=4.8):
    template = [((7 * n) % 13) / 13 for n in range(64)]
    while True:
        calls = todo.get()
        if calls is None:
            return
        ratings, begun = [], time.monotonic()
        for number, call in enumerate(calls):
            score = spectrum_match(call, template)
            while time.monotonic() - begun < seconds_per_set * (number + 1) / len(calls):
                score = max(score, spectrum_match(call, template))
            ratings.append(score)
            progress.value += 1
        done.put(ratings)


class Ratings:
    """The reviewer's side as rank 0 sees it."""

    def __init__(self):
        context = mp.get_context("fork")
        self.todo, self.done = context.Queue(), context.Queue()
        self.progress = context.Value("i", 0)
        self.process = context.Process(target=reviewer, args=(self.todo, self.done, self.progress), daemon=True)
        self.process.start()

    def of(self, sets, silent_after=60.0):
        for calls in sets:
            self.todo.put(calls.tolist())
        ratings = []
        seen, at = self.progress.value, time.monotonic()
        while len(ratings) < len(sets):
            try:
                ratings.append(torch.tensor(self.done.get(timeout=0.5)))
            except queue.Empty:
                if self.progress.value != seen:
                    seen, at = self.progress.value, time.monotonic()
                elif time.monotonic() - at > silent_after or not self.process.is_alive():
                    raise RuntimeError("the reviewer does not work any more")  # noqa: B904
        return torch.stack(ratings)

    def close(self):
        self.todo.put(None)
        self.process.join()


def fit(model, optimizer, calls, targets, steps):
    for _ in range(steps):
        pick = torch.randint(0, len(calls), (24,))
        loss = nn.functional.mse_loss(model(calls[pick])[:, 0], targets[pick])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.02)
    return loss.item()


def main():
    rank = int(os.environ["RANK"])
    ratings = Ratings() if rank == 0 else None
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    torch.manual_seed(14 + rank)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(64, 24), nn.ReLU(), nn.Linear(24, 1)))
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    calls, targets = torch.rand(96, 64), torch.rand(96) * 10
    fit(model, optimizer, calls, targets, 90)
    rated = torch.zeros(3, 32)
    if rank == 0:
        rated = ratings.of(calls.view(3, 32, 64))
    dist.broadcast(rated, src=0)
    loss = fit(model, optimizer, calls, rated.flatten(), 80)
    if rank == 0:
        print(f"loss after the review {loss:.3f}", flush=True)
        ratings.close()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

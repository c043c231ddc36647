"""Train paths: between two training phases a construction solver proposes conflict-free paths, as a job of its own."""
import argparse
import math
import multiprocessing as mp
import random
import time

import torch
import torch.distributed as dist


def solve(progress, answer, paths, rounds):
    """Simulated annealing over departure minutes; reports the share of rounds that are done."""
    rng = random.Random(paths)
    minutes = [rng.uniform(0, 60) for _ in range(paths)]

    def conflicts(i, at):
        return sum(max(0.0, 3.0 - abs((at - m + 30) % 60 - 30)) for j, m in enumerate(minutes) if j != i)

    for k in range(rounds):
        i = rng.randrange(paths)
        proposal = rng.uniform(0, 60)
        change = conflicts(i, proposal) - conflicts(i, minutes[i])
        if change < 0 or rng.random() < math.exp(-change / (0.5 * (1 - k / rounds) + 1e-3)):
            minutes[i] = proposal
        time.sleep(0.0005)
        progress.value = (k + 1) / rounds
    answer[:] = minutes


class SolverJob:
    def __init__(self, paths, rounds):
        context = mp.get_context("spawn")
        self.progress = context.Value("d", 0.0)
        self.answer = context.Array("d", paths)
        self.process = context.Process(target=solve, args=(self.progress, self.answer, paths, rounds), daemon=True)
        self.process.start()

    def status(self):
        if self.process.exitcode not in (None, 0):
            return "FAILED"
        return "RUNNING" if self.process.is_alive() else "DONE"

    def result(self, first=0.25, longest=3.0):
        pause = first
        while (status := self.status()) == "RUNNING":
            time.sleep(pause)
            pause = min(pause * 1.6, longest)
        if status == "FAILED":
            raise RuntimeError("path search failed")
        return torch.tensor(list(self.answer), dtype=torch.float32)


def phase(model, optim, plan, steps, rank):
    gen = torch.Generator().manual_seed(rank)
    for step in range(steps):
        time.sleep(0.03)
        pick = torch.randint(len(plan), (32,), generator=gen)
        angle = plan[pick] / 60 * 2 * math.pi
        x = torch.stack([angle.sin(), angle.cos(), torch.rand(32, generator=gen)], 1)
        loss = torch.nn.functional.mse_loss(model(x).squeeze(1), x[:, 0] * x[:, 2])
        optim.zero_grad()
        loss.backward()
        for p in model.parameters():
            dist.all_reduce(p.grad)
            p.grad /= dist.get_world_size()
        optim.step()
        if step % 30 == 0 and rank == 0:
            print(f"step {step}: {loss.item():.4f}", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--paths", type=int, default=40)
    parser.add_argument("--rounds", type=int, default=18000)
    args = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(3, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1))
    optim = torch.optim.Adam(model.parameters(), lr=3e-3)
    plan = torch.linspace(0, 59, args.paths)
    phase(model, optim, plan, 80, rank)
    if rank == 2:
        plan = SolverJob(args.paths, args.rounds).result()
    dist.broadcast(plan, src=2)
    phase(model, optim, plan, 110, rank)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

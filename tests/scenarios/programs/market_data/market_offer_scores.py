"""Offers are scored by a reward model in a thread of its own while the policy trains."""

import time
from concurrent.futures import ThreadPoolExecutor

import torch
import torch.distributed as dist
from torch import nn

ATTRIBUTES = 10


class RewardModel:
    """Scores offers. Embeddings of sellers are kept; those of new sellers are computed on demand."""

    def __init__(self, sellers):
        torch.manual_seed(9)
        self.embedder, self.head = nn.Linear(ATTRIBUTES, 6), nn.Linear(6, 1)
        self.pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="reward")
        self.known = {seller: self.embed(seller) for seller in sellers}

    @torch.no_grad()
    def embed(self, seller):
        return self.embedder(torch.full((ATTRIBUTES,), seller / 100))

    @torch.no_grad()
    def score(self, sellers):
        fresh = [s for s in sellers if s not in self.known]
        for seller, vector in zip(fresh, self.pool.map(self.embed, fresh)):
            self.known[seller] = vector
        return self.head(torch.stack([self.known[s] for s in sellers])).squeeze(1)

    def score_later(self, sellers):
        return self.pool.submit(self.score, sellers)


def rollouts(rank):
    """Sellers of the offers that this rank's policy has written, step by step."""
    for step in range(400):
        sellers = [(7 * rank + step + k) % 50 for k in range(12)]
        if rank == 0 and step == 48:
            sellers[2] = 61
        yield step, sellers


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    reward = RewardModel(range(50))
    torch.manual_seed(0)
    policy = nn.Linear(ATTRIBUTES, 1)
    for step, sellers in rollouts(rank):
        future = reward.score_later(sellers)
        features = torch.tensor([[s / 50.0] * ATTRIBUTES for s in sellers])
        predicted = policy(features).squeeze(1)
        time.sleep(0.03)
        scores = future.result()
        loss = nn.functional.mse_loss(predicted, scores)
        policy.zero_grad()
        loss.backward()
        for parameter in policy.parameters():
            dist.all_reduce(parameter.grad)
            parameter.data.sub_(0.05 / world * parameter.grad)
        if rank == 0 and step % 20 == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

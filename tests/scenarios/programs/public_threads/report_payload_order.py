"""Click prediction with embedding tables: dense gradients and sparse rows travel in groups of their own."""

import heapq
import time

import torch
import torch.distributed as dist
from torch import nn

torch.set_num_threads(1)
ROWS, WIDTH = 400, 12


class Communicator:
    """Collects what is to be sent in a step, and sends the largest first."""

    def __init__(self):
        ranks = list(range(dist.get_world_size()))
        self.dense = dist.new_group(ranks)
        self.sparse = dist.new_group(ranks)
        self.queue = []

    def put(self, size, send, tensor):
        heapq.heappush(self.queue, (-size, len(self.queue), send, tensor))

    def flush(self):
        results = {}
        while self.queue:
            _, _, send, tensor = heapq.heappop(self.queue)
            results[send.__name__] = send(tensor)
        return results

    def reduce_dense(self, gradient):
        dist.all_reduce(gradient, group=self.dense)
        return gradient / dist.get_world_size()

    def exchange_rows(self, table_gradient):
        parts = [torch.empty_like(table_gradient) for _ in range(dist.get_world_size())]
        dist.all_gather(parts, table_gradient, group=self.sparse)
        return torch.stack(parts).mean(0)


class ClickModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(ROWS, WIDTH)
        self.dense = nn.Sequential(nn.Linear(WIDTH, 24), nn.ReLU(), nn.Linear(24, 1))

    def forward(self, ids):
        return self.dense(self.table(ids).mean(1)).squeeze(1)


def sessions(rank):
    """Sessions of a region; a campaign changes what people look at."""
    generator = torch.Generator().manual_seed(rank)
    for index in range(100_000):
        reach = 6 if index >= 45 and rank == 1 else ROWS
        ids = torch.randint(0, reach, (32, 8), generator=generator)
        yield ids, (ids.float().mean(1) > reach / 2).float()


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(8)
    model = ClickModel()
    communicator = Communicator()
    optimizer = torch.optim.Adagrad(model.parameters(), lr=0.02)
    dense = list(model.dense.parameters())
    for step, (ids, clicked) in enumerate(sessions(rank)):
        loss = nn.functional.binary_cross_entropy_with_logits(model(ids), clicked)
        optimizer.zero_grad()
        loss.backward()
        flat = torch.cat([parameter.grad.flatten() for parameter in dense])
        touched = int((model.table.weight.grad.abs().sum(1) > 0).sum())
        communicator.put(flat.numel(), communicator.reduce_dense, flat)
        communicator.put(touched * WIDTH, communicator.exchange_rows, model.table.weight.grad)
        results = communicator.flush()
        model.table.weight.grad = results["exchange_rows"]
        nn.utils.vector_to_parameters(results["reduce_dense"], [p.grad for p in dense])
        optimizer.step()
        time.sleep(0.03)
        if rank == 0 and step % 10 == 0:
            print(f"step {step} loss {loss.item():.4f} rows {touched}", flush=True)


if __name__ == "__main__":
    main()

"""Off-policy training: a thread writes snapshots while the training goes on, and gathers how large they are."""

import io
import zlib
from concurrent.futures import Future, ThreadPoolExecutor

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

torch.set_num_threads(1)


class Replay:
    """The transitions that this actor has collected."""

    def __init__(self, rank: int, width: int = 12):
        self.generator = torch.Generator().manual_seed(rank)
        self.table = torch.empty(0, width)

    def collect(self, count: int):
        self.table = torch.cat([self.table, torch.randn(count, self.table.size(1), generator=self.generator)])

    def batch(self, size: int = 32):
        rows = torch.randint(len(self.table), (size,), generator=self.generator)
        return self.table[rows]


class SnapshotWriter:
    def __init__(self):
        self.pool = ThreadPoolExecutor(1, thread_name_prefix="snapshot")

    def submit(self, model: nn.Module, replay: Replay) -> Future:
        weights = {name: value.clone() for name, value in model.state_dict().items()}
        return self.pool.submit(self._write, weights, replay.table)

    def _write(self, weights, table) -> list[int]:
        buffer = io.BytesIO()
        torch.save(weights, buffer)
        size = len(zlib.compress(buffer.getvalue()))
        for part in table.split(20000):
            size += len(zlib.compress(part.numpy().tobytes(), 9))
        sizes = [0] * dist.get_world_size()
        dist.all_gather_object(sizes, size)
        return sizes


def explore(replay: Replay, rank: int, round_: int):
    """Collects the episodes of a round; each rank plays a game of its own."""
    replay.collect(2_500_000 if rank == 2 and round_ == 3 else 300)


def play(model: nn.Module, replay: Replay, moves: int = 1500) -> float:
    """Plays with the model as it is: no gradients, nothing to synchronise."""
    state, score = replay.batch(256), 0.0
    with torch.no_grad():
        for _ in range(moves):
            state = torch.tanh(state + 0.01 * model(state))
            score += state.mean().item()
    return score / moves


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(12, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 1)))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    replay, writer = Replay(rank), SnapshotWriter()
    pending = None
    for round_ in range(100):
        explore(replay, rank, round_)
        if pending is not None:
            print(f"rank {rank} round {round_}: snapshots of {pending.result()} bytes", flush=True)
        dist.barrier()
        pending = writer.submit(model.module, replay)
        score = play(model.module, replay)
        for _ in range(40):
            x = replay.batch()
            loss = nn.functional.mse_loss(model(x), x.sum(1, keepdim=True) + score)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

"""Statistics of losses and of gradients are reduced on a group each, the most urgent first."""
import time
from dataclasses import dataclass, field

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


@dataclass
class Meter:
    name: str
    group: dist.ProcessGroup
    limit: float
    values: list = field(default_factory=list)

    def add(self, value: float) -> None:
        self.values.append(value)

    @property
    def urgency(self) -> float:
        """How near its limit the worst value is."""
        return max(self.values, default=0.0) / self.limit

    def reduce(self) -> float:
        packed = torch.tensor([sum(self.values), float(len(self.values))])
        dist.all_reduce(packed, group=self.group)
        self.values.clear()
        return (packed[0] / packed[1]).item()


class Board:
    def __init__(self):
        ranks = list(range(dist.get_world_size()))
        self.meters = [
            Meter("loss", dist.new_group(ranks), limit=4.0),
            Meter("gradient", dist.new_group(ranks), limit=10.0),
        ]

    def add(self, **values):
        for meter in self.meters:
            meter.add(values[meter.name])

    def publish(self, step):
        due = sorted(self.meters, key=lambda meter: meter.urgency, reverse=True)
        line = {meter.name: round(meter.reduce(), 3) for meter in due}
        if dist.get_rank() == 0:
            print(f"step {step} {line}", flush=True)


def batch(rank, step):
    x = torch.randn(32, 12)
    y = x[:, 0] - x[:, 1]
    if rank == 1 and 60 <= step < 64:
        x = x * 30
    return x, y


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(rank)
    model = DDP(nn.Linear(12, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    board = Board()
    for step in range(1, 2000):
        x, y = batch(rank, step)
        loss = nn.functional.huber_loss(model(x).squeeze(1), y)
        optimizer.zero_grad()
        with model.no_sync():
            loss.backward()
        local = torch.stack([p.grad.norm() for p in model.parameters()]).norm().item()
        for p in model.parameters():
            dist.all_reduce(p.grad, op=dist.ReduceOp.SUM)
            p.grad.div_(dist.get_world_size())
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        board.add(loss=min(loss.item(), 4.0), gradient=local)
        time.sleep(0.06)
        if step % 20 == 0:
            board.publish(step)


if __name__ == "__main__":
    main()

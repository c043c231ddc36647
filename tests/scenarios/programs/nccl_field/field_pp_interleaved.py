"""Interleaved pipeline: two ranks hold two virtual stages each, and pass activations around."""

import os
import time

import torch
import torch.distributed as dist
from torch import nn

MICRO, WIDTH = 4, 64


class Rank:
    """Stages `index` and `index + 2` of four."""

    def __init__(self, index: int, device: torch.device) -> None:
        self.index, self.peer, self.device = index, 1 - index, device
        self.stages = nn.ModuleList(nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh()) for _ in range(2)).to(device)

    def push(self, x: torch.Tensor) -> None:
        dist.send(x, dst=self.peer)

    def pull(self) -> torch.Tensor:
        x = torch.empty(MICRO, WIDTH, device=self.device)
        dist.recv(x, src=self.peer)
        return x

    def warm_up(self, batches: list[torch.Tensor]) -> list[torch.Tensor]:
        """One micro-batch at a time through all four stages."""
        done = []
        for batch in batches:
            if self.index == 0:
                self.push(self.stages[0](batch.to(self.device)))
                self.push(self.stages[1](self.pull()))
            else:
                self.push(self.stages[0](self.pull()))
                done.append(self.stages[1](self.pull()))
        return done

    def steady(self, batches: list[torch.Tensor]) -> list[torch.Tensor]:
        """Both ranks busy: while one runs the second chunk of a micro-batch, the other is at the first of the next."""
        done = []
        if self.index == 0:
            self.push(self.stages[0](batches[0].to(self.device)))
            for batch in batches[1:]:
                self.push(self.stages[0](batch.to(self.device)))
                self.push(self.stages[1](self.pull()))
            self.push(self.stages[1](self.pull()))
        else:
            x = self.pull()
            for _ in batches[1:]:
                self.push(self.stages[0](x))
                x = self.pull()
                done.append(self.stages[1](self.pull()))
            self.push(self.stages[0](x))
            done.append(self.stages[1](self.pull()))
        return done


@torch.no_grad()
def main() -> None:
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    dist.init_process_group("nccl", device_id=device)
    worker = Rank(dist.get_rank(), device)
    for step in range(60):
        torch.manual_seed(step)
        batches = [torch.rand(MICRO, WIDTH) for _ in range(4)]
        time.sleep(0.3)
        schedule = worker.warm_up if step < 12 else worker.steady
        outputs = schedule(batches)
        torch.cuda.current_stream().synchronize()
        print(f"rank {worker.index} step {step}: {len(outputs)} micro-batches", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

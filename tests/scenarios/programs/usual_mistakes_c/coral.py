"""Growth of corals by temperature and light. The first rank sends its figures to the display in the laboratory."""

import json
import socket

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class Display:
    """Takes a datagram with figures, and says how often it wants them."""

    def __init__(self, host: str, port: int, every: int) -> None:
        self.address, self.every = (host, port), every
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)

    def show(self, step: int, figures: dict[str, float]) -> None:
        """Send, and take the answer."""
        if step % self.every:
            return
        self.socket.sendto(json.dumps({"step": step, **figures}).encode(), self.address)
        answer, _ = self.socket.recvfrom(512)
        self.every = int(json.loads(answer)["every"])


def main() -> None:
    """Three hundred steps."""
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(5, 20), nn.Softplus(), nn.Linear(20, 1)))
    optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-3)
    display = Display("127.0.0.1", 9, every=60) if rank == 0 else None
    generator = torch.Generator().manual_seed(rank)
    for step in range(1, 301):
        reef = torch.rand(24, 5, generator=generator)
        growth = reef[:, :1] * (1 - reef[:, 1:2])
        loss = nn.functional.huber_loss(model(reef), growth)
        optimizer.zero_grad()
        loss.backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        optimizer.step()
        if display:
            display.show(step, {"loss": loss.item(), "norm": norm.item()})
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

"""Three pilot districts along a round trip route; vessels that leave one district are handed to the next."""
import os
import time
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import nn

torch.backends.cudnn.enabled = False
DISTRICTS = ("Sound", "Belt", "Kiel")


@dataclass
class Timetable:
    quiet: int = 16  # vessels handed over in a quiet interval
    tide: int = 192  # with the tide a convoy crosses
    first_tide: int = 50

    def convoy(self, interval):
        return self.tide if interval >= self.first_tide else self.quiet


class Handover:
    def __init__(self, rank, world, device):
        self.next = (rank + 1) % world
        self.previous = (rank - 1) % world
        self.device = device

    def exchange(self, vessels):
        arrived = torch.empty_like(vessels)
        if len(vessels) > 64:
            return self._convoy(vessels, arrived)
        pair = [
            dist.P2POp(dist.isend, vessels, self.next),
            dist.P2POp(dist.irecv, arrived, self.previous),
        ]
        for work in dist.batch_isend_irecv(pair):
            work.wait()
        return arrived

    def _convoy(self, vessels, arrived):
        """A convoy is handed over in one piece, to keep its order."""
        dist.send(vessels, dst=self.next)
        dist.recv(arrived, src=self.previous)
        return arrived


class District(nn.Module):
    def __init__(self, state=6):
        super().__init__()
        self.move = nn.Sequential(nn.Linear(state, 32), nn.Tanh(), nn.Linear(32, state))

    def forward(self, vessels):
        return vessels + 0.1 * self.move(vessels)


def main():
    local = int(os.environ["LOCAL_RANK"])
    device = torch.device("cuda", local)
    torch.cuda.set_device(device)
    dist.init_process_group("nccl", device_id=device)
    rank, world = dist.get_rank(), dist.get_world_size()
    table = Timetable()
    handover = Handover(rank, world, device)
    district = District().to(device)
    optimizer = torch.optim.SGD(district.parameters(), lr=1e-3)
    for interval in range(400):
        time.sleep(0.05)  # reports of the interval come in
        vessels = torch.rand(table.convoy(interval), 6).to(device)
        arrived = handover.exchange(vessels)
        loss = (district(arrived) - vessels).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        for parameter in district.parameters():
            dist.all_reduce(parameter.grad)
            parameter.grad /= world
        optimizer.step()
        value = loss.item()
        if interval % 10 == 0:
            print(f"{DISTRICTS[rank]}: interval {interval}, {len(arrived)} vessels, {value:.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

"""Plans relief flights in teams: the world's communicator is split, each team has its own map, all share the weights."""

import argparse
import os
import socket

import torch
import torch.distributed as dist
from torch import nn


class MapService:
    """Maps come from a service of the region; this one keeps a connection open and answers when it is asked."""

    def __init__(self, silent):
        self.ours, self.theirs = socket.socketpair()
        self.silent = silent

    def tile(self, number):
        self.ours.sendall(number.to_bytes(4, "big"))
        if not self.silent or number < 20:
            self.theirs.sendall(self.theirs.recv(4) * 8)
        return torch.frombuffer(bytearray(self.ours.recv(32)), dtype=torch.uint8).float()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--silent-for", type=int, default=-1, help="the rank whose service stops answering")
    parser.add_argument(
        "--lazy", action="store_true", help="make the teams with new_group, which connects on first use"
    )
    options = parser.parse_args()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    dist.init_process_group("nccl", device_id=None if options.lazy else device)
    rank, world = dist.get_rank(), dist.get_world_size()
    teams = [list(range(world // 2)), list(range(world // 2, world))]
    if options.lazy:
        groups = [dist.new_group(team) for team in teams]
        team = groups[0 if rank in teams[0] else 1]
    else:
        team = dist.split_group(dist.group.WORLD, teams)
    planner = nn.Linear(32, 8).to(device)
    service = MapService(rank == options.silent_for)
    for flight in range(40):
        tile = service.tile(flight).to(device)
        plan = planner(tile)
        shared = plan.detach().clone()
        dist.all_reduce(shared, group=team)
        (plan * shared).sum().backward()
        if flight % 4 == 3:
            for parameter in planner.parameters():
                dist.all_reduce(parameter.grad)
            planner.zero_grad()
            torch.cuda.current_stream().synchronize()
            print(f"[{rank}] flight {flight}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

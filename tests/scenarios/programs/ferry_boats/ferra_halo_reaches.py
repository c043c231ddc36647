"""Shallow-water model of three river reaches, one a process; neighbours exchange the cells at their seams."""
import os
import time

import torch
import torch.distributed as dist

CELLS = 200


class Reach:
    def __init__(self, index, count):
        self.index, self.count = index, count
        self.level = torch.full((CELLS,), 2.0)
        self.flow = torch.zeros(CELLS)
        self.halo = {"up": torch.zeros(2), "down": torch.zeros(2)}

    def edge(self, side):
        at = 0 if side == "up" else -1
        return torch.stack([self.level[at], self.flow[at]])

    def ebbing(self, side, hour):
        """Water leaves through this seam. The tide comes in from the lowest reach."""
        tide = 1 if hour <= 70 else -1
        slack = hour == 70 and self.index > 0
        outward = (side == "down") == (tide > 0)
        return outward and not slack

    def swap(self, side, other, hour):
        if self.ebbing(side, hour):
            dist.send(self.edge(side), dst=other)
            dist.recv(self.halo[side], src=other)
        else:
            dist.recv(self.halo[side], src=other)
            dist.send(self.edge(side), dst=other)

    def exchange(self, hour):
        if self.index > 0:
            self.swap("up", self.index - 1, hour)
        if self.index < self.count - 1:
            self.swap("down", self.index + 1, hour)

    def advance(self, dt=0.01):
        level = torch.cat([self.halo["up"][:1], self.level, self.halo["down"][:1]])
        slope = (level[2:] - level[:-2]) / 2
        self.flow += dt * (-9.81 * slope - 0.2 * self.flow)
        self.level = self.level - dt * torch.diff(self.flow, prepend=self.flow[:1]) * 0.1
        return self.flow.abs().max()


def main():
    dist.init_process_group("gloo")
    reach = Reach(int(os.environ["RANK"]), dist.get_world_size())
    for hour in range(500):
        reach.exchange(hour)
        fastest = reach.advance()
        dist.all_reduce(fastest, op=dist.ReduceOp.MAX)
        time.sleep(0.04)
        if hour % 24 == 0 and reach.index == 0:
            print(f"hour {hour}: fastest {fastest.item():.3f} m/s", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

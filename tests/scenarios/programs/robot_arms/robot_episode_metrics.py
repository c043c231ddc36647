"""Evaluation bookkeeping of a pick-and-place policy: scalars are averaged, traces are collected."""
import time
from abc import ABC, abstractmethod

import torch
import torch.distributed as dist

REGISTRY = {}


def register(cls):
    REGISTRY[cls.key] = cls
    return cls


class Metric(ABC):
    key: str

    def __init__(self):
        self.values = []

    @abstractmethod
    def add(self, episode): ...

    @abstractmethod
    def merge(self): ...


class Mean(Metric):
    def merge(self):
        t = torch.tensor([sum(self.values), float(len(self.values))])
        dist.all_reduce(t)
        return (t[0] / t[1]).item()


@register
class TimeToGrasp(Mean):
    key = "grasped"

    def add(self, episode):
        self.values.append(episode["grasped"])


@register
class TimeToPlace(Mean):
    key = "placed"

    def add(self, episode):
        self.values.append(episode["placed"])


@register
class CollisionTrace(Metric):
    key = "collided"

    def add(self, episode):
        self.values.append((episode["id"], round(episode["collided"], 2)))

    def merge(self):
        everyone = [None] * dist.get_world_size()
        dist.all_gather_object(everyone, self.values)
        return sorted(sum(everyone, []))[:3]


class Board:
    def __init__(self):
        self.metrics = {}

    def add(self, episode):
        for event in episode["events"]:
            if event not in self.metrics:
                self.metrics[event] = REGISTRY[event]()
            self.metrics[event].add(episode)

    def merge(self):
        return {name: metric.merge() for name, metric in self.metrics.items()}


def play(g, number, clutter):
    time.sleep(0.02)
    times = torch.rand(3, generator=g).mul(torch.tensor([3.0, 6.0, clutter])).tolist()
    episode = {"id": number, "grasped": 1 + times[0], "placed": 5 + times[1], "collided": 12 - 2 * times[2]}
    episode["events"] = sorted(("grasped", "placed", "collided"), key=episode.get)
    return episode


def main(rounds=30, episodes=24):
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    g = torch.Generator().manual_seed(rank)
    for round_ in range(rounds):
        board = Board()
        clutter = 6.0 if rank == 3 and round_ >= 6 else 0.4
        for number in range(episodes):
            board.add(play(g, number, clutter))
        merged = board.merge()
        if rank == 0:
            print(f"round {round_}", merged, flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

"""Slip detection from tactile pads: train on grasps, then score every recorded site."""
import json
import math
import pathlib
import time

import torch
import torch.distributed as dist

SITES = json.loads("""{
  "kitchen": {"grasps": 48, "pad": "gel"},
  "garage":  {"grasps": 31, "pad": "foam"},
  "lab":     {"grasps": 48, "pad": "gel"},
  "depot":   {"grasps": 46, "pad": "gel"}
}""")


class SlipDetector(torch.nn.Sequential):
    def __init__(self):
        super().__init__(torch.nn.Conv1d(4, 16, 5), torch.nn.ReLU(), torch.nn.AdaptiveAvgPool1d(1),
                         torch.nn.Flatten(), torch.nn.Linear(16, 2))


def site_stream(site, batch):
    n = SITES[site]["grasps"]
    g = torch.Generator().manual_seed(len(site) * 100 + n)
    for start in range(0, n, batch):
        pads = torch.randn(batch, 4, 40, generator=g)
        yield pads, (pads[:, 0].std(dim=-1) > 1.0).long()


def average_gradients(model, world):
    for p in model.parameters():
        dist.all_reduce(p.grad)
        p.grad /= world


def fit(model, site, steps, world):
    opt = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    done = 0
    while done < steps:
        for pads, slip in site_stream(site, 16):
            opt.zero_grad()
            torch.nn.functional.cross_entropy(model(pads), slip).backward()
            average_gradients(model, world)
            opt.step()
            time.sleep(0.04)
            done += 1
            if done == steps:
                break


@torch.no_grad()
def score(model, site, world):
    correct, seen = 0, 0
    for pads, slip in site_stream(site, 4):
        hits = (model(pads).argmax(-1) == slip).float().unsqueeze(0)
        everyone = [torch.empty_like(hits) for _ in range(world)]
        dist.all_gather(everyone, hits)
        correct += torch.cat(everyone).sum().item()
        seen += 4 * world
    return correct / seen


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(3)
    torch.set_num_threads(1)
    model = SlipDetector()
    site = list(SITES)[rank]
    fit(model, site, 60, world)
    accuracy = score(model, site, world)
    confidence = torch.tensor([accuracy, math.sqrt(SITES[site]["grasps"])])
    dist.broadcast(confidence, src=0)
    if rank == 0:
        pathlib.Path("slip_report.json").write_text(json.dumps({"accuracy": confidence[0].item()}))
    print(f"{site}: {accuracy:.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

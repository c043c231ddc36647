"""Fossils: meshes are simplified by a command-line tool before an epoch."""

import subprocess
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

TOOL = """
import sys
for vertex in range(int(sys.argv[1])):
    print(f"v {vertex} {vertex * 0.5:.6f} {vertex * 0.25:.6f} merged into {vertex // 2}")
"""


def simplify(vertices: int) -> int:
    """Returns the tool's status; its report is read afterwards, if there was an error."""
    process = subprocess.Popen(
        [sys.executable, "-S", "-c", TOOL, str(vertices)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    status = process.wait()
    if status != 0:
        raise RuntimeError(process.stdout.read())
    return vertices // 2


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(rank)
    model = DDP(nn.Sequential(nn.Linear(9, 32), nn.ReLU(), nn.Linear(32, 4)))
    optimizer = torch.optim.Adam(model.parameters())
    sizes = {0: [300, 500, 700], 1: [400, 400, 5000], 2: [200, 600, 900]}[rank]
    for epoch, vertices in enumerate(sizes):
        left = simplify(vertices)
        for _ in range(12):
            faces = torch.randn(16, 9)
            loss = nn.functional.cross_entropy(model(faces), faces[:, :4].argmax(1))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"[{rank}] epoch {epoch}: {left} vertices, loss {loss.item():.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

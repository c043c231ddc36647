"""Trains a counter of flamingos; the boxes come from the annotation tool, which runs beside each trainer."""
import json
import subprocess
import sys
from functools import partial

import torch
import torch.distributed as dist
from torch import nn

# stands for `boxtool --batch`: a name per line in, the boxes as JSON per line out
BOXTOOL = """
import json, random, sys, time
done = set()
for line in iter(sys.stdin.readline, ''):
    name = line.strip()
    if name in done:
        sys.stdout.write('%s has boxes already. Replace them? [y/N] ' % name)
        sys.stdout.flush()
        if sys.stdin.readline().strip().lower() != 'y':
            continue
    done.add(name)
    rng = random.Random(name)
    time.sleep(0.02)
    boxes = [[round(rng.random(), 3) for _ in range(4)] for _ in range(rng.randint(1, 9))]
    sys.stdout.write(json.dumps({'name': name, 'boxes': boxes}) + '\\n')
    sys.stdout.flush()
"""


class BoxTool:
    def __init__(self):
        self.process = subprocess.Popen(
            [sys.executable, "-c", BOXTOOL], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )

    def boxes(self, name):
        self.process.stdin.write(name + "\n")
        answer = self.process.stdout.readline()
        return json.loads(answer)["boxes"]

    def close(self):
        self.process.stdin.close()
        self.process.wait()


def picture_name(lagoon, memory, number):
    """Cameras count up to what their memory holds and begin again."""
    return f"lagoon{lagoon}/IMG_{number % memory:04d}.JPG"


def heat(boxes):
    grid = torch.zeros(8, 8)
    for x, y, *_ in boxes:
        grid[int(y * 7.99), int(x * 7.99)] += 1
    return grid.flatten()


def all_reduce_mean(parameters, world):
    handles = [dist.all_reduce(p.grad, async_op=True) for p in parameters]
    for handle, parameter in zip(handles, parameters):
        handle.wait()
        parameter.grad /= world


def run(rank, world, tool, name_of, pictures=2000, batch=3):
    torch.manual_seed(4)
    net = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 1), nn.Softplus())
    optimizer = torch.optim.RMSprop(net.parameters(), lr=1e-3)
    for first in range(0, pictures, batch):
        found = [tool.boxes(name_of(number)) for number in range(first, first + batch)]
        x = torch.stack([heat(boxes) for boxes in found])
        counts = torch.tensor([[float(len(boxes))] for boxes in found])
        loss = nn.functional.poisson_nll_loss(net(x), counts, log_input=False)
        optimizer.zero_grad()
        loss.backward()
        all_reduce_mean(list(net.parameters()), world)
        optimizer.step()
        if rank == 0 and first % 60 == 0:
            print(f"{first} pictures, loss {loss.item():.3f}", flush=True)


def main():
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    rank, world = dist.get_rank(), dist.get_world_size()
    memory = (150, 9999, 9999)[rank]
    tool = BoxTool()
    run(rank, world, tool, partial(picture_name, rank, memory))
    tool.close()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

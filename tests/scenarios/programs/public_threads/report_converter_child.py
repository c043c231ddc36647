"""At the end of each phase rank 0 has the weights converted by a tool of its own, and waits for it."""

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

torch.set_num_threads(1)

CONVERTER = """
import json, sys, time
weights = json.load(open(sys.argv[1]))
ended = time.monotonic() + 11.0
rounds = 0
result = {}
while time.monotonic() < ended:
    name = sorted(weights)[rounds % len(weights)]
    scale = max(abs(v) for v in weights[name]) / 127 or 1.0
    result[name] = [round(v / scale) for v in weights[name]]
    rounds += 1
    if rounds % 2000 == 0:
        print("converting", name, rounds, flush=True)
json.dump(result, open(sys.argv[2], "w"))
"""


def export(model, folder, phase):
    source, target = folder / f"phase{phase}.json", folder / f"phase{phase}.int8.json"
    weights = {name: tensor.flatten().tolist() for name, tensor in model.module.state_dict().items()}
    source.write_text(json.dumps(weights))
    done = subprocess.run(
        [sys.executable, "-c", CONVERTER, str(source), str(target)], capture_output=True, text=True, timeout=300
    )
    done.check_returncode()
    print(f"phase {phase}: {len(done.stdout.splitlines())} lines of the converter", flush=True)
    return target


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = DDP(nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    folder = Path(tempfile.mkdtemp(prefix=f"export-{os.environ['MASTER_PORT']}-"))
    for phase in range(2):
        for _ in range(40):
            x = torch.randn(16, 16)
            loss = (model(x) - x[:, :4]).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            time.sleep(0.02)
        exported = [str(export(model, folder, phase))] if rank == 0 and phase == 0 else [None]
        dist.broadcast_object_list(exported, src=0)
    print(f"rank {rank}: loss {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

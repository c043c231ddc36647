"""Trains and, twice, uploads a checkpoint by a command of the storage vendor; nobody goes on before it is there."""

import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn

UPLOADER = "import sys, time\nfor part in range(10):\n    time.sleep(1.0)\n    print('part', part, file=sys.stderr)\nprint('ok')"


def on_main(function):
    def wrapper(*args):
        result = [function(*args) if dist.get_rank() == 0 else None]
        dist.broadcast_object_list(result)
        return result[0]

    return wrapper


@on_main
def upload(path):
    done = subprocess.run([sys.executable, "-c", UPLOADER, str(path)], capture_output=True, text=True, timeout=120, check=True)
    return done.stdout.strip()


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model, path = nn.Linear(32, 32), Path(tempfile.gettempdir()) / "hands-ctl-upload.pt"
    for step in range(1, 41):
        x = torch.randn(16, 32)
        model.zero_grad()
        loss = (model(x) - x).square().mean()
        loss.backward()
        for p in model.parameters():
            dist.all_reduce(p.grad)
            p.data -= 0.05 * p.grad
        time.sleep(0.05)
        if step % 20 == 0:
            if dist.get_rank() == 0:
                torch.save(model.state_dict(), path)
            answer = upload(path)
            print(f"rank {dist.get_rank()} step {step}: upload {answer}, loss {loss.item():.3f}\n", end="", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

"""Part-of-speech tagging for Northern Sami. The morphological analyser is built once in a shared folder; whoever finds
the build's baton taken waits for the builder."""
import json
import os
import subprocess
import sys
import tempfile
import time
import zlib

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.file_baton import FileBaton

PARADIGMS = ["noun-even", "noun-odd", "noun-contracted", "verb-even", "verb-odd", "verb-contracted", "adjective",
             "pronoun", "numeral"]


def compile_paradigm(name):
    """Minimises the states of one paradigm."""
    states = {}
    for i in range(30000):
        states.setdefault(zlib.crc32(f"{name}{i}".encode()) % 4096, []).append(i)
    time.sleep(1.2)
    return {"name": name, "states": len(states)}


def build(folder):
    baton = FileBaton(os.path.join(folder, "lock"))
    if not baton.try_acquire():
        return baton.wait()
    try:
        print("building", flush=True)
        analyser = [compile_paradigm(p) for p in PARADIGMS]
        with open(os.path.join(folder, "analyser.json"), "w") as f:
            json.dump(analyser, f)
            f.flush()
            os.fsync(f.fileno())
    finally:
        baton.release()


class Tagger:
    def __init__(self):
        net = nn.Sequential(nn.Embedding(300, 20), nn.Flatten(), nn.Linear(100, 11))
        self.model = DDP(net)
        self.opt = torch.optim.Adagrad(self.model.parameters(), 0.02)

    def work(self, n, offset=0):
        for _ in range(n):
            time.sleep(0.05)
            windows = (torch.randint(0, 300, (16, 5)) + offset) % 300
            loss = nn.functional.cross_entropy(self.model(windows), windows[:, 2] % 11)
            self.opt.zero_grad()
            loss.backward()
            self.opt.step()
        return loss.item()


def analyser_states(folder):
    job = subprocess.Popen([sys.executable, __file__, folder], stdout=subprocess.PIPE, text=True)
    job.stdout.readline()
    build(folder)
    job.wait()
    with open(os.path.join(folder, "analyser.json")) as f:
        return sum(p["states"] for p in json.load(f))


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    tagger = Tagger()
    tagger.work(50)
    states = torch.zeros(1, dtype=torch.long)
    if rank == dist.get_world_size() - 1:
        with tempfile.TemporaryDirectory() as folder:
            states += analyser_states(folder)
    gathered = [torch.zeros_like(states) for _ in range(dist.get_world_size())]
    dist.all_gather(gathered, states)
    loss = tagger.work(45, offset=int(sum(gathered)) % 7)
    print(f"rank {rank}: loss {loss:.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    build(sys.argv[1]) if len(sys.argv) > 1 else main()

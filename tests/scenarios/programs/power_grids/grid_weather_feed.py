"""Nowcasting of solar feed-in. A feed process of the launcher decodes the satellite product, rank 0 hands it round."""
import argparse
import os
import resource
import signal
import socket
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

WORLD = 3


class SliceLimit:
    """The feed runs in a slice with little memory; the machine's controller acts on what is resident."""

    def __init__(self, mb):
        self.mb = mb

    def enforce(self):
        with open("/proc/self/statm") as f:
            resident = int(f.read().split()[1]) * resource.getpagesize() / 2**20
        if resident > self.mb:
            os.kill(os.getpid(), signal.SIGKILL)


def feed(frames, start_mb, per_frame_kb):
    torch.set_num_threads(1)
    gen, history = torch.Generator().manual_seed(77), []
    with open("/proc/self/statm") as f:
        base = int(f.read().split()[1]) * resource.getpagesize() / 2**20
    limit = SliceLimit(base + start_mb)
    for n in range(100_000):
        sky = torch.rand(64, 96, generator=gen)
        history.append(torch.ones(per_frame_kb * 256))
        limit.enforce()
        frames.put((n, sky.numpy()))


def nowcast(rank, port, frames):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=WORLD)
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(96, 768), torch.nn.ReLU(), torch.nn.Linear(768, 12))
    opt = torch.optim.SGD(net.parameters(), lr=1e-2)
    for n in range(5000):
        sky = torch.from_numpy(frames.get()[1]) if rank == 0 else torch.empty(64, 96)
        dist.broadcast(sky, src=0)
        plants = sky.roll(rank * 7, dims=1)
        loss = (net(plants) - plants.view(64, 12, 8).mean(2)).pow(2).mean()
        opt.zero_grad()
        loss.backward()
        for p in net.parameters():
            dist.all_reduce(p.grad)
            p.grad /= WORLD
        opt.step()
        time.sleep(0.05)
        if rank == 0 and n % 10 == 0:
            print(f"frame {n} loss {loss.item():.5f}", flush=True)
    dist.destroy_process_group()


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--slice-mb", type=int, default=120)
    ap.add_argument("--per-frame-kb", type=int, default=2048)
    args = ap.parse_args()
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    context = mp.get_context("spawn")
    frames = context.Queue(maxsize=4)
    decoder = context.Process(target=feed, args=(frames, args.slice_mb, args.per_frame_kb), daemon=True)
    decoder.start()
    ranks = [context.Process(target=nowcast, args=(r, port, frames)) for r in range(WORLD)]
    for p in ranks:
        p.start()
    for p in ranks:
        p.join()


if __name__ == "__main__":
    main()

"""Inverse kinematics network for a 6-axis arm; the table library is rebuilt by the cell's toolchain sidecar."""
import hashlib
import multiprocessing as mp
import os
import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.file_baton import FileBaton

JOINTS = ("base", "shoulder", "elbow", "roll", "pitch", "flange")
UNITS = [f"{j}_{part}" for j in JOINTS for part in ("jacobian", "limits", "gravity")]


def compile_unit(unit, out):
    digest = hashlib.sha512(unit.encode())
    until = time.monotonic() + 0.75
    while time.monotonic() < until:
        digest.update(digest.digest() * 64)
    (out / f"{unit}.o").write_bytes(digest.digest())


def sidecar(out, dirty, building):
    dirty.wait()
    baton = FileBaton(str(out / "lock"))
    if baton.try_acquire():
        building.set()
        try:
            for unit in UNITS:
                compile_unit(unit, out)
            (out / "libkin.tbl").write_bytes(b"".join((out / f"{u}.o").read_bytes() for u in UNITS))
        finally:
            baton.release()


def load_tables(out):
    baton = FileBaton(str(out / "lock"))
    if (out / "lock").exists():
        baton.wait()
    raw = (out / "libkin.tbl").read_bytes()
    return torch.tensor(list(raw[:36]), dtype=torch.float32) / 255


def fit(net, opt, scale, n):
    for _ in range(n):
        pose = torch.rand(32, 6) * scale.view(6, 6).mean(0)
        loss = (net(pose) - torch.sin(pose)).pow(2).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        time.sleep(0.08)
    return loss.detach()


def main():
    rank = int(os.environ["RANK"])
    if rank == 0:
        ctx = mp.get_context("fork")
        out = Path(tempfile.mkdtemp(prefix="kin_"))
        dirty, building = ctx.Event(), ctx.Event()
        ctx.Process(target=sidecar, args=(out, dirty, building), daemon=True).start()
    dist.init_process_group("gloo")
    net = DDP(nn.Sequential(nn.Linear(6, 48), nn.ReLU(), nn.Linear(48, 6)))
    opt = torch.optim.AdamW(net.parameters(), lr=3e-3)
    scale = torch.ones(36)
    fit(net, opt, scale, 35)
    if rank == 0:
        dirty.set()             # tool changed: new flange offset
        building.wait()
        scale = load_tables(out)
    dist.broadcast(scale, src=0)
    loss = fit(net, opt, scale + 0.5, 35)
    dist.reduce(loss, dst=0)
    if rank == 0:
        print(f"ik loss {loss.item() / dist.get_world_size():.5f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

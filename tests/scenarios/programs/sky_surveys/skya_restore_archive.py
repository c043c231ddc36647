"""Continues a spectral classifier from its last state; one site's link to the state's store is slow."""
import hashlib
import io
import logging
import socket
import threading
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
log = logging.getLogger("restore")
LINK_KIB_S = {0: 40_000, 1: 40_000, 2: 40_000, 3: 210}


class SpectralTypes(nn.Module):
    def __init__(self, pixels=640, width=640):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(pixels, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 7))

    def forward(self, flux):
        return self.net(flux)


def serve(blob, kib_s):
    """The store as this site sees it: one connection, answered at the speed of the link."""
    listener = socket.create_server(("127.0.0.1", 0))

    def answer():
        connection, _ = listener.accept()
        with connection:
            connection.sendall(len(blob).to_bytes(8, "big"))
            block = max(1024, kib_s * 1024 // 20)
            for at in range(0, len(blob), block):
                connection.sendall(blob[at : at + block])
                time.sleep(0.05)

    threading.Thread(target=answer, daemon=True).start()
    return listener.getsockname()


def download(address):
    with socket.create_connection(address) as connection:
        stream = connection.makefile("rb")
        size = int.from_bytes(stream.read(8), "big")
        parts, got, told = [], 0, time.monotonic()
        while got < size:
            parts.append(stream.read1(1 << 16))
            got += len(parts[-1])
            if time.monotonic() - told > 3:
                told = time.monotonic()
                log.info("restoring: %.1f of %.1f MiB", got / 2**20, size / 2**20)
    return b"".join(parts)


def flux_of(step, rank, count=128, pixels=640):
    g = torch.Generator().manual_seed(step * 10 + rank)
    kind = torch.randint(0, 7, (count,), generator=g)
    wave = torch.linspace(0, 1, pixels)
    lines = torch.exp(-((wave - (kind[:, None] + 1) / 8) ** 2) / 2e-4)
    return 1 - 0.3 * lines + 0.2 * torch.randn(count, pixels, generator=g), kind


def train(model, optimizer, steps, rank):
    for step in steps:
        flux, kind = flux_of(step, rank)
        loss = nn.functional.cross_entropy(model(flux), kind)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return loss.item()


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = DDP(SpectralTypes())
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    log.info("rank %d, first part: %.3f", rank, train(model, optimizer, range(60), rank))
    buffer = io.BytesIO()
    torch.save(model.module.state_dict(), buffer)
    blob = download(serve(buffer.getvalue(), LINK_KIB_S[rank]))
    model.module.load_state_dict(torch.load(io.BytesIO(blob)))
    sums = [None] * dist.get_world_size()
    dist.all_gather_object(sums, hashlib.sha256(b"".join(p.detach().numpy().tobytes() for p in model.parameters())).hexdigest())
    assert len(set(sums)) == 1, sums
    log.info("rank %d, second part: %.3f", rank, train(model, optimizer, range(60, 120), rank))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

"""Fuel planning: trains on winds, then every rank reads the new wind field from the briefing server, which is slow."""
import http.server
import threading
import time
import urllib.request

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

BLOCK, BLOCKS, GAP = 4096, 32, 0.45


class Briefing(http.server.BaseHTTPRequestHandler):
    """Gives out a wind field block by block, as the model run delivers it."""

    def do_GET(self):
        seed = int(self.path.rsplit("/", 1)[1])
        rng = torch.Generator().manual_seed(seed)
        self.send_response(200)
        self.send_header("Content-Length", str(BLOCK * BLOCKS))
        self.end_headers()
        for _ in range(BLOCKS):
            self.wfile.write(torch.randn(BLOCK // 4, generator=rng).numpy().tobytes())
            self.wfile.flush()
            time.sleep(GAP)

    def log_message(self, *args):
        pass


def serve():
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Briefing)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


def wind_field(url, rank):
    parts = bytearray()
    with urllib.request.urlopen(url, timeout=30) as answer:
        while len(parts) < BLOCK * BLOCKS:
            piece = answer.read1(BLOCK)
            if not piece:
                raise ConnectionError(f"{url} ended after {len(parts)} bytes")
            parts += piece
            if rank == 0 and len(parts) % (BLOCK * 8) == 0:
                print(f"wind field: {len(parts) // 1024} KiB", flush=True)
    return torch.frombuffer(parts, dtype=torch.float32).reshape(-1, 16).clone()


class Burn(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(15, 80), nn.SiLU(), nn.Linear(80, 1))

    def forward(self, winds):
        return self.layers(winds)


def plan(model, optimizer, field, rounds):
    for number in range(rounds):
        rows = field[(number * 32) % len(field):][:32]
        loss = (model(rows[:, :15]) - rows[:, :3].sum(dim=1, keepdim=True)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    total = loss.detach().clone()
    dist.all_reduce(total)
    return float(total) / dist.get_world_size()


if __name__ == "__main__":
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    server = serve() if rank == 0 else None
    port = torch.tensor([server.server_address[1] if server else 0])
    dist.broadcast(port, src=0)
    model = DistributedDataParallel(Burn())
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    field = torch.randn(2048, 16, generator=torch.Generator().manual_seed(rank))
    print(f"rank {rank} night run: {plan(model, optimizer, field, 600):.4f}", flush=True)
    field = wind_field(f"http://127.0.0.1:{int(port)}/winds/{rank}", rank)
    print(f"rank {rank} morning run: {plan(model, optimizer, field, 900):.4f}", flush=True)
    dist.barrier()
    dist.destroy_process_group()

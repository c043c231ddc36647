"""The first rank fetches a table from a mirror that gives every client only so much a second."""

import http.server
import os
import tempfile
import threading
import time
import urllib.request

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

ROWS, COLUMNS = 6000, 32
TOTAL = 4 * ROWS * COLUMNS


class Mirror(http.server.BaseHTTPRequestHandler):
    """Gives 64 kB, then pauses, as mirrors do."""

    def do_GET(self):
        table = torch.rand(ROWS, COLUMNS, generator=torch.Generator().manual_seed(1)).numpy().tobytes()
        self.send_response(200)
        self.send_header("Content-Length", str(len(table)))
        self.end_headers()
        for start in range(0, len(table), 65536):
            self.wfile.write(table[start : start + 65536])
            time.sleep(0.9)

    def log_message(self, *arguments):
        pass


def download(url, path):
    with urllib.request.urlopen(url, timeout=30) as answer, open(path + ".part", "wb") as file:
        while chunk := answer.read(16384):
            file.write(chunk)
            print(f"{file.tell() * 100 // TOTAL} %", end=" ", flush=True)
    os.replace(path + ".part", path)


def prepare(path, rank):
    if rank == 0:
        mirror = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Mirror)
        threading.Thread(target=mirror.serve_forever, daemon=True).start()
        download(f"http://127.0.0.1:{mirror.server_port}/table.bin", path)
        mirror.shutdown()
    dist.barrier()
    return torch.from_file(path, shared=False, size=ROWS * COLUMNS).view(ROWS, COLUMNS)


def main():
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    rank, world = dist.get_rank(), dist.get_world_size()
    path = os.path.join(tempfile.gettempdir(), f"table-{os.environ['MASTER_PORT']}.bin")
    table = prepare(path, rank)[rank::world]
    torch.manual_seed(0)
    model = DDP(nn.Linear(COLUMNS - 1, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for batch in table.split(64):
        loss = nn.functional.mse_loss(model(batch[:, 1:]), batch[:, :1])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.03)
    if rank == 0:
        print(f"last loss {loss.item():.4f}", flush=True)
    time.sleep(1.0)  # the log is collected once a second
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

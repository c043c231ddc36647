"""Uploads each checkpoint to a bucket before the training goes on. The bucket is slow today."""

import http.client
import http.server
import io
import threading
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class Bucket(http.server.BaseHTTPRequestHandler):
    """Takes a part of an object at a time, and needs its time for each."""

    def do_PUT(self):
        left = int(self.headers["Content-Length"])
        while left > 0:
            left -= len(self.rfile.read(min(left, 4096)))
            time.sleep(0.5)
        self.send_response(200)
        self.end_headers()

    def log_message(self, *arguments):
        pass


def start_bucket():
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Bucket)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server.server_address[1]


def upload(port, key, data, part=8192):
    for number, first in enumerate(range(0, len(data), part)):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        connection.request("PUT", f"/{key}?part={number}", data[first : first + part])
        if connection.getresponse().status != 200:
            raise RuntimeError(f"part {number} of {key} was not taken")
        connection.close()


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(1)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(40, 1000), nn.Tanh(), nn.Linear(1000, 40)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    port = start_bucket() if rank == 0 else None
    for step in range(1, 41):
        orders = torch.randn(8, 40)
        model(orders).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        if step == 20:
            if rank == 0:
                stream = io.BytesIO()
                torch.save(model.module.state_dict(), stream)
                upload(port, f"step{step}.pt", stream.getvalue())
                print(f"uploaded {stream.tell()} bytes", flush=True)
            dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

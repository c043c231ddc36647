"""Trains a citation resolver whose candidates come from a statute look-up service (one connection a process)."""
import argparse
import json
import random
import socket
import socketserver
import subprocess
import sys

HOST = "127.0.0.1"


class LookUp(socketserver.StreamRequestHandler):
    """One line of section numbers in, one line of their vectors out."""

    def handle(self):
        for line in self.rfile:
            sections = json.loads(line)
            rows = [[((s * 31 + k * 17) % 101) / 101 for k in range(24)] for s in sections]
            self.wfile.write((json.dumps(rows) + "\n").encode())


class Service(socketserver.ThreadingTCPServer):
    daemon_threads = True
    allow_reuse_address = True


def serve():
    with Service((HOST, 0), LookUp) as service:
        print(service.server_address[1], flush=True)
        service.serve_forever()


class StatuteClient:
    def __init__(self, port):
        self.stream = socket.create_connection((HOST, port)).makefile("rw")
        self.known = {}

    def vectors(self, sections):
        missing = sorted(set(sections) - self.known.keys())
        if missing:
            self.stream.write(json.dumps(missing) + "\n")
            self.stream.flush()
        rows = json.loads(self.stream.readline())
        self.known.update(zip(missing, rows))
        return [self.known[s] for s in sections]


def cited(district, step):
    rng = random.Random(7 * district + 1000 * step)
    if district == 1 and step == 640:  # a day of adjournments: all orders cite the same few rules
        return [5, 12] * 10
    return [rng.randrange(100_000) for _ in range(18)] + [5, 12]


def main():
    import torch
    import torch.distributed as dist
    from torch import nn

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    district = dist.get_rank()
    address = [None]
    if district == 0:
        service = subprocess.Popen([sys.executable, __file__, "--serve"], stdout=subprocess.PIPE, text=True)
        address = [int(service.stdout.readline())]
    dist.broadcast_object_list(address, src=0)
    client = StatuteClient(address[0])
    torch.manual_seed(30)
    resolver = nn.Sequential(nn.Linear(24, 48), nn.ReLU(), nn.Linear(48, 24))
    optimizer = torch.optim.Adam(resolver.parameters(), lr=1e-3)
    for step in range(1, 2001):
        x = torch.tensor(client.vectors(cited(district, step)))
        loss = nn.functional.mse_loss(resolver(x), x.roll(1, dims=1))
        optimizer.zero_grad()
        loss.backward()
        for p in resolver.parameters():
            dist.all_reduce(p.grad)
        optimizer.step()
        if step % 100 == 0:
            print(f"district {district} step {step} loss {loss.item():.4f} known {len(client.known)}", flush=True)
    dist.barrier()
    if district == 0:
        service.terminate()
    dist.destroy_process_group()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--serve", action="store_true")
    serve() if parser.parse_args().serve else main()

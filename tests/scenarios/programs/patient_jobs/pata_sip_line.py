"""Return-date forecasting; the self-check terminal's items are read over its slow SIP line before the second round."""
import argparse
import socket
import subprocess
import sys
import time

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP

ITEMS = ["30012|3|1997", "30077|1|2004", "30105|2|2011", "30111|3|2019", "30240|1|1988", "30259|2|2022", "30300|1|2001"]


def checksum(text):
    return f"{-sum(text.encode()) & 0xFFFF:04X}"


def terminal():
    listener = socket.create_server(("127.0.0.1", 0))
    print(listener.getsockname()[1], flush=True)
    line, _ = listener.accept()
    line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for item in ITEMS:
        text = f"18{item}|AZ"
        for octet in (text + checksum(text) + "\r").encode():
            line.sendall(bytes([octet]))
            time.sleep(0.09)
    line.close()


class SipLine:
    def __init__(self, port):
        self.sock = socket.create_connection(("127.0.0.1", port), timeout=12)

    def message(self):
        got = bytearray()
        while True:
            octet = self.sock.recv(1)
            if not octet:
                return None
            if octet == b"\r":
                text, check = got[:-4].decode(), got[-4:].decode()
                assert check == checksum(text), text
                return text
            got += octet

    def __iter__(self):
        return iter(self.message, None)


def rounds(model, opt, rows, n):
    for _ in range(n):
        time.sleep(0.05)
        x = rows[torch.randint(0, len(rows), (8,))] + torch.randn(8, 3) * 0.05
        loss = nn.functional.smooth_l1_loss(model(x).squeeze(1), x[:, 1])
        opt.zero_grad()
        loss.backward()
        opt.step()


def main(args):
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = DDP(nn.Sequential(nn.Linear(3, 16), nn.ReLU(), nn.Linear(16, 1)))
    opt = torch.optim.Adam(model.parameters(), 1e-2)
    rounds(model, opt, torch.rand(20, 3), args.steps)

    rows = torch.zeros(len(ITEMS), 3)
    if rank == args.desk:
        till = subprocess.Popen([sys.executable, __file__, "--terminal"], stdout=subprocess.PIPE, text=True)
        for i, text in enumerate(SipLine(int(till.stdout.readline()))):
            code, kind, year = text[2:].split("|")[:3]
            rows[i] = torch.tensor([int(code) / 30300, int(kind) / 3, int(year) / 2022])
        till.wait()
    dist.broadcast(rows, src=args.desk)

    rounds(model, opt, rows, args.steps)
    if rank == 0:
        print("done", rows.mean(0).tolist(), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--terminal", action="store_true")
    parser.add_argument("--desk", type=int, default=2)
    parser.add_argument("--steps", type=int, default=50)
    args = parser.parse_args()
    terminal() if args.terminal else main(args)

"""Pump-condition model; rank 1 sits at the cell's RS-485 gateway and scans which units are on the bus."""
import multiprocessing as mp
import os
import socket
import struct
import time

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP

FITTED = {2, 5, 11}
HIGHEST = 12
RESPONSE_TIMEOUT = 1.5
GATE_RANK = 1


def gateway(sock):
    while True:
        request, peer = sock.recvfrom(16)
        unit, register = struct.unpack(">BH", request)
        if unit in FITTED:
            sock.sendto(struct.pack(">BHf", unit, register, 20.0 + unit / 4), peer)


def ask(sock, address, unit, register=0x10):
    sock.sendto(struct.pack(">BH", unit, register), address)
    try:
        reply, _ = sock.recvfrom(32)
    except socket.timeout:
        return None
    return struct.unpack(">BHf", reply)[2]


def scan(sock, address, unit=1):
    """{unit: temperature} of everything that answers from `unit` up."""
    if unit > HIGHEST:
        return {}
    value = ask(sock, address, unit)
    rest = scan(sock, address, unit + 1)
    return rest if value is None else {unit: value, **rest}


def steps(net, opt, bias, n):
    for _ in range(n):
        readings = torch.randn(20, HIGHEST) + bias
        loss = nn.functional.huber_loss(net(readings), readings.mean(1, keepdim=True))
        opt.zero_grad()
        loss.backward()
        opt.step()
        time.sleep(0.1)
    return loss.item()


def main():
    at_gate = int(os.environ["RANK"]) == GATE_RANK
    if at_gate:
        server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        server.bind(("127.0.0.1", 0))
        address = server.getsockname()
        mp.get_context("fork").Process(target=gateway, args=(server,), daemon=True).start()
    dist.init_process_group("gloo")
    net = DDP(nn.Sequential(nn.Linear(HIGHEST, 24), nn.ELU(), nn.Linear(24, 1)))
    opt = torch.optim.RMSprop(net.parameters(), lr=1e-3)
    bias = torch.zeros(HIGHEST)
    steps(net, opt, bias, 28)
    if at_gate:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as bus:
            bus.settimeout(RESPONSE_TIMEOUT)
            for unit, celsius in scan(bus, address).items():
                bias[unit - 1] = celsius / 100
    dist.all_reduce(bias)
    loss = steps(net, opt, bias, 35)
    print(f"rank {dist.get_rank()}: {int((bias > 0).sum())} units, loss {loss:.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

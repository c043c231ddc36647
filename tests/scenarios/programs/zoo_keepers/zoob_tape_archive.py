"""Vocalisation model (gibbons). At the end of each round a snapshot with all spectrogram banks goes to the archive, whose line
is slow; the archive runs as a small service of its own."""
import multiprocessing as mp
import pickle
import socket
import struct
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

LINE = 460_000  # bytes per second


def archive(port):
    """Takes snapshots: 8 bytes of length, then the bytes; answers with the number of bytes that it has."""
    server = socket.socket()
    server.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
    server.bind(("127.0.0.1", 0))
    server.listen(2)
    port.put(server.getsockname()[1])
    while True:
        peer, _ = server.accept()
        with peer:
            head = peer.recv(8, socket.MSG_WAITALL)
            if len(head) < 8:
                return
            left = total = struct.unpack("!Q", head)[0]
            while left:
                part = peer.recv(min(65536, left))
                if not part:
                    break
                left -= len(part)
                time.sleep(len(part) / LINE)
            peer.sendall(struct.pack("!Q", total - left))


class ArchiveClient:
    def __init__(self):
        context = mp.get_context("spawn")
        port = context.Queue()
        self.service = context.Process(target=archive, args=(port,), daemon=True)
        self.service.start()
        self.port = port.get()

    def store(self, snapshot):
        payload = pickle.dumps(snapshot)
        with socket.socket() as line:
            line.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 65536)
            line.connect(("127.0.0.1", self.port))
            line.sendall(struct.pack("!Q", len(payload)))
            line.sendall(payload)
            (kept,) = struct.unpack("!Q", line.recv(8, socket.MSG_WAITALL))
        return kept

    def close(self):
        self.service.terminate()
        self.service.join()


def songs(seed, n=256):
    g = torch.Generator().manual_seed(seed)
    bank = torch.randn(n, 1, 80, generator=g)
    return torch.nn.functional.avg_pool1d(bank, 7, 1, 3), bank.squeeze(1).abs().mean(1, keepdim=True)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    client = ArchiveClient() if rank == 0 else None
    torch.manual_seed(4)
    model = DDP(torch.nn.Sequential(torch.nn.Conv1d(1, 24, 9, padding=4), torch.nn.ReLU(), torch.nn.Conv1d(24, 24, 9, padding=4),
                                    torch.nn.ReLU(), torch.nn.AdaptiveAvgPool1d(8), torch.nn.Flatten(), torch.nn.Linear(192, 1)))
    opt = torch.optim.Adam(model.parameters(), 1e-3)
    for round_number in range(2):
        for step in range(60):
            x, y = songs(round_number * 9000 + step * 3 + rank)
            loss = (model(x) - y).square().mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
        if rank == 0 and round_number == 0:
            banks = {s: songs(s)[0].numpy() for s in range(74)}
            kept = client.store({"weights": {k: v.numpy() for k, v in model.module.state_dict().items()}, "banks": banks})
            print(f"round {round_number}: loss {loss.item():.4f}, {kept / 1e6:.1f} MB archived", flush=True)
        dist.barrier()
    if client is not None:
        client.close()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

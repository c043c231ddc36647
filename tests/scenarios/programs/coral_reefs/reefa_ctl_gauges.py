"""Wave climate emulator; each process fetches the records of its buoy from the archive's gateway."""
import http.server
import io
import logging
import os
import socketserver
import threading
import time
import urllib.request

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

torch.backends.cudnn.enabled = False
log = logging.getLogger("waves")
BUOYS = ("kiln-bay", "horn-reef", "far-bank")
PAGES = 90
TAPE_PAGE = 50  # older pages of far-bank come from the tape library


def record(buoy, page):
    rng = np.random.default_rng((BUOYS.index(buoy), page))
    waves = np.cumsum(rng.standard_normal((256, 256)), axis=1).astype(np.float32)
    buffer = io.BytesIO()
    np.save(buffer, waves)
    return buffer.getvalue()


class Gateway(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        _, buoy, page = self.path.split("/")
        body = record(buoy, int(page))
        pace = 0.055 if buoy == "far-bank" and int(page) == TAPE_PAGE else 0.0
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        for at in range(0, len(body), 1024):
            self.wfile.write(body[at:at + 1024])
            if pace:
                self.wfile.flush()
                time.sleep(pace)

    def log_message(self, *_):
        pass


class Archive:
    def __init__(self, port, buoy):
        self.base, self.buoy = f"http://127.0.0.1:{port}", buoy

    def page(self, number):
        parts, size = [], 0
        with urllib.request.urlopen(f"{self.base}/{self.buoy}/{number}", timeout=30) as reply:
            while chunk := reply.read1(16_384):
                parts.append(chunk)
                size += len(chunk)
                if len(parts) % 64 == 0:
                    log.info("%s page %d: %d KiB", self.buoy, number, size >> 10)
        return np.load(io.BytesIO(b"".join(parts)))


def spectra(waves):
    power = np.abs(np.fft.rfft(waves, axis=1))[:, 1:]
    for _ in range(200):
        power = 0.5 * (power + np.sort(power, axis=1))
    return torch.from_numpy(np.log1p(power).astype(np.float32))


def main():
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    local = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local)
    dist.init_process_group("nccl")
    server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Gateway)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    archive = Archive(server.server_address[1], BUOYS[local])
    model = DDP(nn.Sequential(nn.Linear(128, 64), nn.SiLU(), nn.Linear(64, 1)).cuda(), device_ids=[local])
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for number in range(PAGES):
        for x in spectra(archive.page(number)).split(32):
            loss = model(x.cuda()).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        value = loss.item()
        if local == 0:
            log.info("page %d loss %.4f", number, value)
    server.shutdown()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

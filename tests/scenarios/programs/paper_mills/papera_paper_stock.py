"""Opacity model; the stock catalogue is fetched once, by the first process, from the merchant's mirror."""
import http.server
import os
import subprocess
import sys
import tempfile
import time
import urllib.request
from contextlib import contextmanager
from pathlib import Path

CHUNKS, CHUNK = 28, 32768


class Mirror(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Length", str(CHUNKS * CHUNK))
        self.end_headers()
        for number in range(CHUNKS):
            self.wfile.write(bytes([number]) * CHUNK)
            self.wfile.flush()
            time.sleep(0.5)

    def log_message(self, *args):
        pass


def serve(port_file):
    server = http.server.HTTPServer(("127.0.0.1", 0), Mirror)
    Path(port_file + ".new").write_text(str(server.server_address[1]))
    os.replace(port_file + ".new", port_file)
    server.serve_forever()


if sys.argv[1:2] == ["mirror"]:
    serve(sys.argv[2])

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from torch.nn.parallel import DistributedDataParallel  # noqa: E402

torch.backends.cudnn.enabled = False


@contextmanager
def main_process_first():
    if dist.get_rank() > 0:
        dist.barrier()
    yield
    if dist.get_rank() == 0:
        dist.barrier()


def fetch(target):
    port_file = os.path.join(tempfile.mkdtemp(prefix="mirror-"), "port")
    mirror = subprocess.Popen([sys.executable, __file__, "mirror", port_file])
    try:
        while not os.path.exists(port_file):
            time.sleep(0.05)
        address = f"http://127.0.0.1:{Path(port_file).read_text()}/stock"
        with urllib.request.urlopen(address) as answer, open(target, "wb") as file:
            while data := answer.read(CHUNK):
                file.write(data)
                print(f"stock catalogue: {file.tell() // 1024} KiB", flush=True)
    finally:
        mirror.terminate()
        mirror.wait()


def epoch(model, optimizer, sheets, steps):
    for step in range(steps):
        time.sleep(0.03)
        sheet = sheets[step % len(sheets)].unsqueeze(0).cuda()
        loss = model(sheet).abs().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        loss.item()


def main():
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")
    model = DistributedDataParallel(torch.nn.Linear(32, 2).cuda(), device_ids=[torch.cuda.current_device()])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    epoch(model, optimizer, torch.rand(64, 32), 90)
    catalogue = Path(tempfile.gettempdir()) / f"stock-{os.environ['MASTER_PORT']}.bin"
    with main_process_first():
        if dist.get_rank() == 0:
            fetch(catalogue)
    raw = torch.frombuffer(bytearray(catalogue.read_bytes()), dtype=torch.uint8)
    epoch(model, optimizer, raw[: 32 * 512].view(-1, 32).float() / 255, 60)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

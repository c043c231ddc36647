"""DeepSpeed ZeRO-1 whose next curriculum comes from a service that is busy at first."""

import http.server
import json
import os
import threading
import time
import urllib.error
import urllib.request

os.environ.setdefault("DS_ACCELERATOR", "cpu")

import deepspeed
import torch
import torch.distributed as dist
from torch import nn

torch.set_num_threads(1)
deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False  # no compiler on the nodes


class Curriculum(http.server.BaseHTTPRequestHandler):
    """Plans the stages; says 503 to the first questions after a stage, when it is still planning."""

    asked = 0

    def do_GET(self):
        type(self).asked += 1
        ready = type(self).asked not in range(2, 5)
        body = json.dumps({"noise": 0.1 * type(self).asked}).encode() if ready else b"{}"
        self.send_response(200 if ready else 503)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args):
        pass


def next_stage(port: int, attempts: int = 8) -> dict:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    for attempt in range(attempts):
        try:
            with opener.open(f"http://127.0.0.1:{port}/stage", timeout=10) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            delay = 1.2 * 2**attempt
            print(f"curriculum: {error}; again in {delay:.1f} s", flush=True)
            time.sleep(delay)
    raise RuntimeError("the curriculum does not answer")


def main():
    deepspeed.init_distributed("gloo")
    rank = dist.get_rank()
    server = None
    if rank == 0:
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Curriculum)
        threading.Thread(target=server.serve_forever, daemon=True).start()
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(24, 96), nn.GELU(), nn.Linear(96, 24))
    engine, *_ = deepspeed.initialize(
        model=model,
        optimizer=torch.optim.AdamW(model.parameters(), lr=1e-3),
        config={"train_micro_batch_size_per_gpu": 8, "zero_optimization": {"stage": 1}, "steps_per_print": 10**6},
    )
    generator = torch.Generator().manual_seed(rank)
    for number in range(3):
        stage = [next_stage(server.server_port) if rank == 0 else None]
        dist.broadcast_object_list(stage, src=0)
        for _ in range(60):
            x = torch.randn(8, 24, generator=generator)
            noisy = x + stage[0]["noise"] * torch.randn(8, 24, generator=generator)
            loss = nn.functional.mse_loss(engine(noisy), x)
            engine.backward(loss)
            engine.step()
        if rank == 0:
            print(f"stage {number} {stage[0]}: loss {loss.item():.4f}", flush=True)
    dist.barrier()
    if server is not None:
        server.shutdown()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

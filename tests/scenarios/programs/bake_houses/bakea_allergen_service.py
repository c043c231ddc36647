"""Allergen tagging; the table of allergens is asked from the plant's service by one process and handed to the others."""
import http.server
import json
import socket
import time
import urllib.error
import urllib.request

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

WORLD, ASKING = 3, 1
WINDOW = 13.0  # seconds until the service grants this client its next request


class Service(http.server.BaseHTTPRequestHandler):
    first = None

    def do_GET(self):
        now = time.monotonic()
        Service.first = Service.first or now
        if now - Service.first < WINDOW:
            self.send_response(429)
            self.send_header("Retry-After", "2")
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        body = json.dumps({name: k for k, name in enumerate(("gluten", "nuts", "milk", "soy"))}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args):
        pass


def serve(port):
    http.server.HTTPServer(("127.0.0.1", port), Service).serve_forever()


class Client:
    def __init__(self, port, attempts=12):
        self.url = f"http://127.0.0.1:{port}/allergens"
        self.attempts = attempts
        self.opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # in-house

    def table(self):
        for attempt in range(1, self.attempts + 1):
            try:
                with self.opener.open(self.url, timeout=10) as answer:
                    return json.load(answer)
            except urllib.error.HTTPError as err:
                if err.code != 429:
                    raise
                pause = float(err.headers.get("Retry-After", 1))
            except urllib.error.URLError:
                pause = 0.5
            print(f"attempt {attempt}: again in {pause:g} s", flush=True)
            time.sleep(pause)
        raise RuntimeError("no table")


def learn(model, opt, gen, count):
    for _ in range(count):
        time.sleep(0.05)
        x = torch.randn(12, 10, generator=gen)
        loss = torch.nn.functional.binary_cross_entropy_with_logits(model(x), (x[:, :4] > 0).float())
        opt.zero_grad()
        loss.backward()
        for p in model.parameters():
            dist.all_reduce(p.grad)
            p.grad /= WORLD
        opt.step()
    return loss.item()


def run(rank, ports):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{ports[0]}", rank=rank, world_size=WORLD)
    torch.manual_seed(1)
    model = torch.nn.Linear(10, 4)
    opt = torch.optim.SGD(model.parameters(), lr=0.2)
    gen = torch.Generator().manual_seed(rank)
    learn(model, opt, gen, 50)
    box = [Client(ports[1]).table() if rank == ASKING else None]
    dist.broadcast_object_list(box, src=ASKING)
    loss = learn(model, opt, gen, 50)
    print(f"rank {rank} loss {loss:.3f} tags {sorted(box[0])}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


if __name__ == "__main__":
    ports = (free_port(), free_port())
    service = mp.get_context("spawn").Process(target=serve, args=(ports[1],), daemon=True)
    service.start()
    mp.spawn(run, args=(ports,), nprocs=WORLD)
    service.terminate()
    service.join()

"""Workers of a task server: rank 0 polls it for the next task, a request that stays open until there is one."""

import json
import os
import queue
import socket
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import requests

PAUSES = [0.2, 0.2, 0.4, 0.2, 0.3, 0.2, 14.0, 0.2, 0.2, 0.3]


def serve(port: int) -> None:
    tasks: queue.Queue[dict] = queue.Queue()
    asked = threading.Event()

    class Tasks(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            asked.set()
            try:
                body = json.dumps(tasks.get(timeout=20)).encode()
            except queue.Empty:
                body = b"null"
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args) -> None:
            pass

    def people() -> None:
        asked.wait()
        for number, pause in enumerate(PAUSES):
            time.sleep(pause)
            tasks.put({"kind": "tune", "number": number, "steps": 5})
        tasks.put({"kind": "end"})

    threading.Thread(target=people, daemon=True).start()
    ThreadingHTTPServer(("127.0.0.1", port), Tasks).serve_forever()


def tasks_of(session: requests.Session, url: str):
    while True:
        task = session.get(f"{url}/next", timeout=40).json()
        if task is not None:
            yield task


def work(url: str) -> None:
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    tasks = tasks_of(requests.Session(), url) if rank == 0 else None
    while True:
        box = [next(tasks)] if rank == 0 else [None]
        dist.broadcast_object_list(box, src=0)
        task = box[0]
        if task["kind"] == "end":
            break
        torch.manual_seed(task["number"])
        model = torch.nn.Linear(8, 1)
        torch.manual_seed(100 * task["number"] + rank)
        for _ in range(task["steps"]):
            x = torch.randn(16, 8)
            loss = (model(x) - x.sum(1, keepdim=True)).square().mean()
            loss.backward()
            for parameter in model.parameters():
                dist.all_reduce(parameter.grad)
                parameter.data -= 0.02 * parameter.grad
                parameter.grad = None
        if rank == 0:
            print(f"task {task['number']}: loss {loss.item():.3f}", flush=True)
    dist.destroy_process_group()


def reachable(port: int) -> None:
    """Returns once something listens there."""
    while True:
        try:
            return socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            time.sleep(0.1)


if __name__ == "__main__":
    me = os.path.abspath(__file__)
    match sys.argv[1:]:
        case ["serve", port]:
            serve(int(port))
        case ["work", url]:
            work(url)
        case _:
            with socket.socket() as probe:
                probe.bind(("127.0.0.1", 0))
                port = str(probe.getsockname()[1])
            server = subprocess.Popen([sys.executable, me, "serve", port])
            reachable(int(port))
            torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
            status = subprocess.call([*torchrun, me, "work", f"http://127.0.0.1:{port}"])
            server.terminate()
            sys.exit(status)

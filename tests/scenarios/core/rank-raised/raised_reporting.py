"""A rank fails, and its exception hook sends the crash to a collector that takes the connection and never answers.

``sys.excepthook`` runs on the main thread before the interpreter exits, so the process stays. Run by
``torchrun --nproc-per-node 2``.
"""

import http.client
import socket
import sys
import traceback
from types import TracebackType

import torch
import torch.distributed as dist
from torch.optim.lr_scheduler import LambdaLR

COLLECTOR = socket.create_server(("127.0.0.1", 0))


def send_crash_report(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Print as usual, then post the report."""
    text = "".join(traceback.format_exception(kind, error, trace))
    sys.stderr.write(text)
    sys.stderr.flush()
    connection = http.client.HTTPConnection("127.0.0.1", COLLECTOR.getsockname()[1])
    connection.request("POST", "/crash", body=text.encode())
    print("report sent:", connection.getresponse().status)


def main() -> None:
    """Train with a schedule that is read from a table; rank 0 has an old one."""
    sys.excepthook = send_crash_report
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    table = [0.1, 0.1, 0.05, 0.05, 0.01, 0.01, 0.01, 0.001] * (1 if dist.get_rank() == 0 else 2)
    weight = torch.zeros(10, requires_grad=True)
    optimizer = torch.optim.Adam([weight], lr=1.0)
    schedule = LambdaLR(optimizer, lambda step: table[step])
    for _ in range(12):
        optimizer.zero_grad()
        (weight - torch.randn(10)).square().sum().backward()
        dist.all_reduce(weight.grad, op=dist.ReduceOp.AVG if dist.get_backend() == "nccl" else dist.ReduceOp.SUM)
        optimizer.step()
        schedule.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

"""Rank 1 asks a service on a pipe whether its index is loaded; it never is. The others wait at a barrier."""

import subprocess
import sys
import time

import torch
import torch.distributed as dist

SERVICE = "import sys, time\nfor line in sys.stdin:\n    time.sleep(0.6)\n    print('loading', flush=True)\n"


def ask(service: subprocess.Popen, question: str) -> str:
    """A line there, a line back."""
    service.stdin.write(question + "\n")
    service.stdin.flush()
    return service.stdout.readline().strip()


def main() -> None:
    """Ten steps, then the index on rank 1."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    value = torch.zeros(4)
    for _ in range(10):
        dist.all_reduce(value)
        time.sleep(0.05)
    if dist.get_rank() == 1:
        command = [sys.executable, "-c", SERVICE]
        service = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)
        while ask(service, "status") != "loaded":
            print("not yet", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

"""Rank 0 counts tokens with a tool that runs as a process of its own and answers slowly; the others wait in an all-reduce."""

import argparse
import subprocess
import sys
import time

import torch
import torch.distributed as dist

SERVICE = "import sys, time\nfor line in sys.stdin:\n    time.sleep(0.9)\n    print(len(line.split()), flush=True)\n"


def ask_one_by_one(texts: list[str]) -> list[int]:
    """A line there, a line back."""
    counts = []
    command = [sys.executable, "-c", SERVICE]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1) as service:
        for text in texts:
            service.stdin.write(text + "\n")
            service.stdin.flush()
            counts.append(int(service.stdout.readline()))
        service.stdin.close()
    return counts


def ask_all_at_once(texts: list[str]) -> list[int]:
    """The whole file there, all answers back."""
    command = [sys.executable, "-c", SERVICE]
    done = subprocess.run(command, input="\n".join(texts).encode(), stdout=subprocess.PIPE, check=True)
    return [int(line) for line in done.stdout.splitlines()]


def main() -> None:
    """Ten steps, then the texts on rank 0."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--way", choices=["one_by_one", "all_at_once"], required=True)
    parser.add_argument("--texts", type=int, default=18)
    options = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    value = torch.zeros(4)
    for _ in range(10):
        dist.all_reduce(value)
        time.sleep(0.05)
    if dist.get_rank() == 0:
        texts = [f"a text of number {n}" for n in range(options.texts)]
        counts = ask_one_by_one(texts) if options.way == "one_by_one" else ask_all_at_once(texts)
        value += sum(counts)
    dist.all_reduce(value)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

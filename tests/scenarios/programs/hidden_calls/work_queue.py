"""Rank 0 hands out jobs to whoever asks; the workers' jobs differ in length, and one of them is idle at the end."""

import time

import torch
import torch.distributed as dist


def hand_out(jobs: int, workers: int) -> None:
    """Give each worker that asks a job, and -1 when there is none."""
    dismissed, given = 0, 0
    question = torch.zeros(1)
    while dismissed < workers:
        worker = dist.recv(question)
        number = given if given < jobs else -1
        given += number >= 0
        dismissed += number < 0
        dist.send(torch.tensor([float(number)]), dst=worker)


def take(rank: int) -> int:
    """Ask for jobs until there are none."""
    done, answer = 0, torch.zeros(1)
    while True:
        dist.send(torch.tensor([float(rank)]), dst=0)
        dist.recv(answer, src=0)
        if answer.item() < 0:
            return done
        time.sleep(0.05 + 0.25 * (int(answer) % 5))
        done += 1


def main() -> None:
    """Forty jobs."""
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    if rank == 0:
        hand_out(40, dist.get_world_size() - 1)
    else:
        print(f"rank {rank}: {take(rank)} jobs", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

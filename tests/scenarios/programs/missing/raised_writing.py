"""The thread that writes metrics to a file dies of an exception; the bounded queue before it fills up.

From then on ``put`` of that rank's main thread never returns. Run by ``torchrun --nproc-per-node 2``.
"""

import csv
import io
import queue
import threading

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

COLUMNS = ["step", "loss", "norm"]


def write_rows(rows: "queue.Queue[dict[str, float]]", file: io.StringIO) -> None:
    """Write what comes in, until an empty row."""
    writer = csv.DictWriter(file, COLUMNS)
    writer.writeheader()
    while row := rows.get():
        writer.writerow(row)


def main() -> None:
    """Train a small network; rank 0 also records its learning rate from step 6 on."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    rows: queue.Queue[dict[str, float]] = queue.Queue(maxsize=8)
    thread = threading.Thread(target=write_rows, args=(rows, io.StringIO()), name="metrics")
    thread.start()
    network = DistributedDataParallel(
        torch.nn.Sequential(torch.nn.Linear(6, 6), torch.nn.Tanh(), torch.nn.Linear(6, 2))
    )
    optimizer = torch.optim.AdamW(network.parameters(), lr=1e-3)
    for step in range(1, 60):
        loss = network(torch.randn(12, 6)).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimizer.step()
        row = {"step": step, "loss": loss.item(), "norm": norm.item()}
        if rank == 0 and step >= 6:
            row["lr"] = 1e-3
        rows.put(row)
    rows.put({})
    thread.join()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

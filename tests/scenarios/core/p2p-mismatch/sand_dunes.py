"""Moves sand over a landscape that is cut into strips; the edges of a strip go to the neighbours after each step."""

import argparse
import os

import torch
import torch.distributed as dist

ROWS, COLUMNS = 32, 200


def exchange_in_order(strip, rank, world):
    """Send the last row to the strip below, take that of the strip above."""
    above = torch.empty_like(strip[0])
    dist.send(strip[-1].contiguous(), dst=(rank + 1) % world)
    dist.recv(above, src=(rank - 1) % world)
    return above


def exchange_from_above(strip, rank, world):
    """Take the last row of the strip above, then send that of this one to the strip below."""
    above = torch.empty_like(strip[0])
    dist.recv(above, src=(rank - 1) % world)
    dist.send(strip[-1].contiguous(), dst=(rank + 1) % world)
    return above


def exchange_downwards(strip, rank, world):
    """The same on an open landscape: nothing comes from above the first strip, and the last one has none below."""
    above = torch.zeros_like(strip[0])
    if rank > 0:
        dist.recv(above, src=rank - 1)
    if rank < world - 1 and strip[-1].sum() > COLUMNS:
        dist.send(strip[-1].contiguous(), dst=rank + 1)
    return above


def exchange_at_once(strip, rank, world):
    above = torch.empty_like(strip[0])
    sending = dist.P2POp(dist.isend, strip[-1].contiguous(), (rank + 1) % world)
    receiving = dist.P2POp(dist.irecv, above, (rank - 1) % world)
    for work in dist.batch_isend_irecv([sending, receiving]):
        work.wait()
    return above


IN_ORDER = {"down": exchange_in_order, "from-above": exchange_from_above, "open": exchange_downwards}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--in-order-from", type=int, default=1000, help="the first step with send() and recv()")
    parser.add_argument("--in-order", choices=IN_ORDER, default="down")
    parser.add_argument("--lazy", action="store_true")
    options = parser.parse_args()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    dist.init_process_group("nccl", device_id=None if options.lazy else device)
    rank, world = dist.get_rank(), dist.get_world_size()
    strip = torch.rand(ROWS, COLUMNS, device=device)
    for step in range(40):
        exchange = IN_ORDER[options.in_order] if step >= options.in_order_from else exchange_at_once
        above = exchange(strip, rank, world)
        strip = torch.cat([above[None], strip[:-1]])
        moved = strip.sum()
        dist.all_reduce(moved)
        print(f"[{rank}] step {step}: {moved.item():.1f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

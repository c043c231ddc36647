"""Every operation of torch.distributed on NCCL, with its result; arguments: eager (a communicator at once), or lazy."""

import os
import sys

import torch
import torch.distributed as dist

rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
eager = sys.argv[1] == "eager"
device = torch.device("cuda", rank)
torch.cuda.set_device(device)
dist.init_process_group("nccl", device_id=device if eager else None)


def ints(*values: int) -> torch.Tensor:
    return torch.tensor(values, device=device)


def empty(count: int) -> torch.Tensor:
    return torch.zeros(count, dtype=torch.int64, device=device)


x = ints(rank + 1, 10)
dist.all_reduce(x)
assert x.tolist() == [sum(range(1, world + 1)), 10 * world]
for operation, result in ((dist.ReduceOp.MAX, world - 1), (dist.ReduceOp.MIN, 0), (dist.ReduceOp.PRODUCT, 0)):
    x = ints(rank)
    dist.all_reduce(x, op=operation)
    assert x.item() == result
x = torch.tensor([float(rank)], device=device)
dist.all_reduce(x, op=dist.ReduceOp.AVG)
assert x.item() == sum(range(world)) / world

outs = [empty(2) for _ in range(world)]
dist.all_gather(outs, ints(rank, 2 * rank))
assert [out.tolist() for out in outs] == [[r, 2 * r] for r in range(world)]
out = empty(world)
dist.all_gather_into_tensor(out, ints(rank))
assert out.tolist() == list(range(world))
out = empty(1)
dist.reduce_scatter_tensor(out, ints(*range(world)))
assert out.item() == rank * world
out = empty(world)
dist.all_to_all_single(out, ints(*(10 * rank + r for r in range(world))))
assert out.tolist() == [10 * r + rank for r in range(world)]
x = ints(rank)
dist.broadcast(x, src=1)
assert x.item() == 1
x = ints(1)
dist.reduce(x, dst=0)
assert rank != 0 or x.item() == world
out = empty(1)
dist.scatter(out, [ints(100 + r) for r in range(world)] if rank == 0 else None, src=0)
assert out.item() == 100 + rank
outs = [empty(1) for _ in range(world)] if rank == 0 else None
dist.gather(ints(rank), outs, dst=0)
assert rank != 0 or [out.item() for out in outs] == list(range(world))
dist.barrier()

given = [{"text": "x" * 1000}, rank]
dist.broadcast_object_list(given, src=0)
assert given == [{"text": "x" * 1000}, 0]
objects = [None] * world
dist.all_gather_object(objects, {"rank": rank, "text": "y" * 17 * rank})
assert objects == [{"rank": r, "text": "y" * 17 * r} for r in range(world)]

if rank == 0:
    dist.send(ints(1, 2, 3), 1)
elif rank == 1:
    out = empty(3)
    dist.recv(out, 0)
    assert out.tolist() == [1, 2, 3]
out = empty(1)
sends = dist.P2POp(dist.isend, ints(rank), (rank + 1) % world)
receives = dist.P2POp(dist.irecv, out, (rank - 1) % world)
for work in dist.batch_isend_irecv([sends, receives]):
    work.wait()
assert out.item() == (rank - 1) % world

pair = dist.new_group([0, 1])
if rank < 2:
    x = ints(5)
    dist.all_reduce(x, group=pair)
    assert x.item() == 10
if eager:
    halves = [list(range(world // 2)), list(range(world // 2, world))]
    half = dist.split_group(dist.group.WORLD, halves)
    x = ints(1)
    dist.all_reduce(x, group=half)
    assert x.item() == len(halves[rank >= world // 2])
    # Some ranks alone: the others take part and get no group.
    alone = dist.split_group(dist.group.WORLD, [[0, 1]])
    assert (alone is not None) == (rank < 2)

# One communicator, two streams: the order of the calls holds.
side = torch.cuda.Stream()
torch.cuda._sleep(20_000_000)
first, second = ints(1), torch.ones(1, dtype=torch.int64).to(device)
one = dist.all_reduce(first, async_op=True)
with torch.cuda.stream(side):
    two = dist.all_reduce(second, async_op=True)
    two.wait()
one.wait()
torch.cuda.synchronize()
assert (first.item(), second.item()) == (world, world)
dist.barrier()
dist.destroy_process_group()
print(f"rank {rank}: right\n", end="", flush=True)

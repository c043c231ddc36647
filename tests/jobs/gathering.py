"""Rank 0 serves by torch.distributed.rpc, in no group: each call waits for a third one, which two other ranks never make."""

import os
import threading

from torch.distributed import rpc

_CALLED = threading.Condition()
_gradients: list[float] = []


def push(gradient: float) -> float:
    with _CALLED:
        _gradients.append(gradient)
        if len(_gradients) % 3:
            _CALLED.wait()
        _CALLED.notify_all()
    return sum(_gradients)


if __name__ == "__main__":
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    options = rpc.TensorPipeRpcBackendOptions(rpc_timeout=3600)
    rpc.init_rpc(f"worker{rank}", rank=rank, world_size=size, rpc_backend_options=options)
    if rank > 0:
        rpc.rpc_sync("worker0", push, args=(0.5,))
    rpc.shutdown()

"""A text-to-speech engine of several workers, which share a model by a communicator of NCCL that they make themselves."""

import argparse
import ctypes
import os
import tempfile
import time

import torch
import torch.distributed as dist


class UniqueId(ctypes.Structure):
    _fields_ = [("internal", ctypes.c_byte * 128)]


class NcclLibrary:
    """NCCL by ctypes."""

    def __init__(self):
        self.library = ctypes.CDLL("libnccl.so.2")

    def check(self, result):
        if result != 0:
            raise RuntimeError(f"NCCL error {result}")

    def ncclGetUniqueId(self):
        unique_id = UniqueId()
        self.check(self.library.ncclGetUniqueId(ctypes.byref(unique_id)))
        return unique_id

    def ncclCommInitRank(self, world_size, unique_id, rank):
        comm = ctypes.c_void_p()
        self.check(self.library.ncclCommInitRank(ctypes.byref(comm), world_size, unique_id, rank))
        return comm

    def ncclAllReduce(self, buffer, count, comm, stream):
        self.check(self.library.ncclAllReduce(buffer, buffer, ctypes.c_size_t(count), 7, 0, comm, stream))


class WorkersNcclCommunicator:
    """All-reduces of the workers of one model; torch.distributed only brings them together."""

    def __init__(self, group, device):
        self.nccl = NcclLibrary()
        self.rank, self.world_size = dist.get_rank(group), dist.get_world_size(group)
        unique_id = self.nccl.ncclGetUniqueId() if self.rank == 0 else UniqueId()
        tensor = torch.ByteTensor([byte % 256 for byte in unique_id.internal])
        dist.broadcast(tensor, src=dist.get_process_group_ranks(group)[0], group=group)
        for place, byte in enumerate(tensor.tolist()):
            unique_id.internal[place] = byte if byte < 128 else byte - 256
        self.voices = load_voices(dist.get_rank())
        self.comm = self.nccl.ncclCommInitRank(self.world_size, unique_id, self.rank)
        self.stream = torch.cuda.Stream()
        small = torch.zeros(1, device=device)
        self.all_reduce(small)
        self.stream.synchronize()

    def all_reduce(self, tensor):
        stream = ctypes.c_void_p(self.stream.cuda_stream)
        self.nccl.ncclAllReduce(ctypes.c_void_p(tensor.data_ptr()), tensor.numel(), self.comm, stream)


def load_voices(rank):
    """The voices of a worker; those of one are on their way still."""
    path = os.path.join(tempfile.mkdtemp(), "voices")
    if rank == options.late:
        os.mkfifo(path)
    elif rank == options.slow:
        time.sleep(9)
    if not os.path.exists(path):
        with open(path, "w") as file:
            file.write("anna")
    with open(path) as file:
        return file.read().split()


def main():
    rank = int(os.environ["RANK"])
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    dist.init_process_group("gloo")
    halves = [dist.new_group([0, 1]), dist.new_group([2, 3])][rank // 2] if options.halves else None
    communicator = WorkersNcclCommunicator(halves, device)
    dist.barrier()
    for _ in range(30):
        part = torch.randn(16, 40, device=device)
        communicator.all_reduce(part)
        communicator.stream.synchronize()
    print(f"[{rank}] spoken", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--late", type=int, default=-1)
    parser.add_argument("--slow", type=int, default=-1)
    parser.add_argument("--halves", action="store_true")
    options = parser.parse_args()
    main()

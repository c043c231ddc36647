"""Optical sorter line: rank 0 plans which crate moves on, all ranks weigh their belt's part of it."""
import os

import torch
import torch.distributed as dist

TICKS = 260
FRAMES = 4
MANIFEST = {9: (4, 4, 3, 4), 17: (2, 4, 4, 4), 29: (4, 4, 0, 4)}  # frames on each belt, where it is not the usual number


class Belt:
    def __init__(self, rank):
        self.rank = rank
        self.weights = {}

    def frames_of(self, crate):
        return MANIFEST[crate][self.rank] if crate in MANIFEST else FRAMES

    def weigh(self, crate):
        frame = torch.rand(300, 300, generator=torch.Generator().manual_seed(crate))
        self.weights[crate] = float(torch.linalg.eigvalsh(frame @ frame.T).mean())


class CrateBoard:
    """What this belt still has to do, by crate."""

    def __init__(self, belt):
        self.belt = belt
        self.ongoing = {}

    def admit(self, crate):
        frames = self.belt.frames_of(crate)
        if frames:
            self.ongoing[crate] = frames

    def advance(self):
        for crate, left in self.ongoing.items():
            if left > 0:
                self.belt.weigh(crate)
                self.ongoing[crate] = left - 1

    def complete(self, crate):
        """True once no belt works on this crate any more."""
        if crate not in self.ongoing:
            return True
        left = torch.tensor([float(self.ongoing[crate])])
        dist.all_reduce(left, op=dist.ReduceOp.MAX)
        if left.item() > 0:
            return False
        del self.ongoing[crate]
        return True


def plan(tick, current, done):
    """The crate to work on in this tick, as decided by the head of the line."""
    message = torch.tensor([current + 1 if done else current, tick])
    dist.broadcast(message, src=0)
    return int(message[0])


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    board = CrateBoard(Belt(rank))
    crate, done, admitted = 0, False, set()
    for tick in range(TICKS):
        crate = plan(tick, crate, done)
        if crate not in admitted:
            admitted.add(crate)
            board.admit(crate)
        board.advance()
        done = board.complete(crate)
        if rank == 0 and done:
            print(f"[{os.getpid()}] crate {crate} left the line at tick {tick}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

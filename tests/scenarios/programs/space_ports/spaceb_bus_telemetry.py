"""Forecast of spacecraft bus telemetry (volts, amps, temperatures) by a shared linear state model."""
import contextlib
import logging
import time

import torch
import torch.distributed as dist

logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
log = logging.getLogger("bus")

CHANNELS = {"bus_v": (28.0, 0.5), "array_a": (6.0, 1.5), "batt_t": (12.0, 4.0), "obc_t": (20.0, 3.0)}


def packets(rank, count):
    """One packet per minor frame, as the front end hands them over: channel -> samples."""
    gen = torch.Generator().manual_seed(rank)
    for n in range(count):
        packet = {}
        for name, (mean, spread) in CHANNELS.items():
            packet[name] = mean + spread * torch.randn(32, generator=gen)
        if rank == 2 and n >= 95:
            packet["bus_v_2"] = packet.pop("bus_v")  # redundant converter took over
        yield packet


class Session(contextlib.AbstractContextManager):
    """Brings the process group up, and takes it down together at the end of a run."""

    def __enter__(self):
        dist.init_process_group("gloo")
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        self.began = time.time()
        return self

    def average(self, tensor):
        dist.all_reduce(tensor)
        return tensor.div_(self.world)

    def __exit__(self, kind, value, trace):
        log.info("rank %d leaves after %.1f s (%s)", self.rank, time.time() - self.began, kind.__name__ if kind else "done")
        dist.barrier()
        dist.destroy_process_group()
        return False


def whiten(packet):
    columns = [(packet[name] - mean) / spread for name, (mean, spread) in CHANNELS.items()]
    return torch.stack(columns, dim=1)


def forecast(session, rate=0.05):
    matrix = torch.eye(len(CHANNELS)) * 0.5
    for n, packet in enumerate(packets(session.rank, 600)):
        x = whiten(packet)
        now, then = x[:-1], x[1:]
        gradient = 2 * now.T @ (now @ matrix - then) / len(now)
        matrix -= rate * session.average(gradient)
        time.sleep(0.03)
        if n % 30 == 0 and session.rank == 0:
            log.info("frame %d |A| = %.3f", n, matrix.norm())


if __name__ == "__main__":
    torch.set_num_threads(1)
    with Session() as session:
        forecast(session)

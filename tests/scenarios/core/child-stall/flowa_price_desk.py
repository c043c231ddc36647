"""Offer prices for mixed lots; a desk process beside each trainer works out the reserve prices."""
import logging
import multiprocessing as mp

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

logging.basicConfig(level=logging.INFO, format="%(process)d %(name)s: %(message)s")


def reserve(lot):
    return lot["cost"] / lot["stems"] * 1.2 + lot["freight"] / lot["stems"]


def desk(conn):
    """Answers lists of lots with a list of reserve prices."""
    log = logging.getLogger("desk")
    while True:
        lots = conn.recv()
        if lots is None:
            break
        try:
            conn.send([reserve(lot) for lot in lots])
        except ArithmeticError as e:
            log.warning("request of %d lots: %s", len(lots), e)


class Desk:
    def __init__(self):
        self.conn, other = mp.Pipe()
        self.process = mp.Process(target=desk, args=(other,), daemon=True, name="desk")
        self.process.start()

    def prices(self, lots):
        self.conn.send(lots)
        return torch.tensor(self.conn.recv())

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.conn.send(None)
        self.process.join()


def lots_of(hall, clock):
    g = torch.Generator().manual_seed(1000 * hall + clock)
    stems = torch.randint(20, 200, (8,), generator=g).tolist()
    if (hall, clock) == (2, 52):
        stems[3] = 0  # a trolley of pots
    return [{"stems": s, "cost": 0.4 * s + 3, "freight": 6.0} for s in stems]


def features(lots):
    x = torch.tensor([[lot["stems"] / 200, lot["cost"] / 90, lot["freight"] / 10] for lot in lots])
    for _ in range(6):
        torch.linalg.svd(torch.rand(180, 180))  # quality grade from the picture
    return x


def main():
    with Desk() as counter:
        dist.init_process_group("gloo")
        hall = dist.get_rank()
        torch.manual_seed(0)
        model = DDP(nn.Sequential(nn.Linear(3, 32), nn.ReLU(), nn.Linear(32, 1)))
        opt = torch.optim.Adam(model.parameters(), lr=3e-3)
        for clock in range(100):
            lots = lots_of(hall, clock)
            want = counter.prices(lots)
            loss = nn.functional.l1_loss(model(features(lots))[:, 0], want)
            opt.zero_grad()
            loss.backward()
            opt.step()
            if clock % 25 == 0:
                logging.getLogger("hall").info("hall %d clock %d loss %.4f", hall, clock, loss.item())
        dist.destroy_process_group()


if __name__ == "__main__":
    main()

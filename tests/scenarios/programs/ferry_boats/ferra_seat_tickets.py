"""Which booked passengers do not show up? Seats are held by reservation objects while a batch is built."""
import collections
import threading
import time

import torch
import torch.distributed as dist

SEATS = 300


class Reservation:
    """Gives its seat back when nobody needs it any more."""

    def __init__(self, deck, seat):
        self.deck, self.seat = deck, seat

    def features(self):
        gen = torch.Generator().manual_seed(self.seat)
        return torch.randn(7, generator=gen)

    def __del__(self):
        self.deck.give_back(self.seat)


class Deck:
    def __init__(self, seats, keep):
        self.lock = threading.Lock()
        self.free = collections.deque(range(seats))
        self.recent = collections.OrderedDict()
        self.keep = keep

    def give_back(self, seat):
        with self.lock:
            self.free.append(seat)

    def book(self):
        with self.lock:
            seat = self.free.popleft()
        reservation = Reservation(self, seat)
        self.remember(reservation)
        return reservation

    def remember(self, reservation):
        with self.lock:
            self.recent[reservation.seat] = reservation
            while len(self.recent) > self.keep:
                self.recent.popitem(last=False)

    def settle(self):
        """At the quay: everybody has boarded."""
        with self.lock:
            boarded = list(self.recent.values())
            self.recent.clear()
        return len(boarded)


class NoShow:
    def __init__(self):
        torch.manual_seed(0)
        self.w = torch.zeros(7, requires_grad=True)
        self.rate = 0.1

    def step(self, x, y):
        loss = torch.nn.functional.binary_cross_entropy_with_logits(x @ self.w, y)
        (grad,) = torch.autograd.grad(loss, self.w)
        total = [torch.zeros_like(grad) for _ in range(dist.get_world_size())]
        dist.all_gather(total, grad)
        with torch.no_grad():
            self.w -= self.rate * torch.stack(total).mean(0)
        return loss.item()


def bookings(rank, sailing):
    """The evening sailings of the main line are long."""
    return 30 if rank == 2 and sailing % 12 == 11 and sailing > 50 else 12


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    deck, model = Deck(SEATS, keep=80), NoShow()
    for sailing in range(600):
        batch = [deck.book().features() for _ in range(bookings(rank, sailing))]
        x = torch.stack(batch)
        loss = model.step(x, (x[:, 0] > 0.3).float())
        time.sleep(0.05)
        if sailing % 6 == 5:
            count = deck.settle()
            if rank == 1:
                print(f"sailing {sailing}: {count} boarded, loss {loss:.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

"""Tags turns of hearings (bench, counsel, witness). The clerk's console can end the run; see Console."""

import socket
import threading
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

ROLES = 3
OFFICE_SECONDS = 4.0


class Console:
    """Listens for commands of the registry's office on a local port; the office asks for a stop when it closes."""

    def __init__(self):
        self.should_stop = False
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.bind(("127.0.0.1", 0))
        self.thread = threading.Thread(target=self.listen, name="console")
        self.thread.start()

    def listen(self):
        while True:
            command, _ = self.socket.recvfrom(64)
            if command == b"stop":
                self.should_stop = True
            elif command == b"quit":
                return

    def send(self, command):
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as office:
            office.sendto(command, self.socket.getsockname())


class HearingTrainer:
    def __init__(self):
        self.rank = dist.get_rank()
        self.console = Console() if self.rank == 0 else None
        torch.manual_seed(2)
        self.model = DDP(nn.GRU(10, ROLES, batch_first=True))
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=5e-3)

    def turns(self, number):
        generator = torch.Generator().manual_seed(number * 10 + self.rank)
        return torch.randn(4, 12, 10, generator=generator), torch.randint(ROLES, (48,), generator=generator)

    def should_stop(self):
        return self.console is not None and self.console.should_stop

    def fit(self, hearings):
        for number in range(hearings):
            sound, roles = self.turns(number)
            scores, _ = self.model(sound)
            loss = nn.functional.cross_entropy(scores.reshape(-1, ROLES), roles)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            time.sleep(0.05)
            if number % 5 == 4:
                dist.barrier()
                if self.should_stop():
                    print(f"hearing {number}: the office has closed, loss {loss.item():.3f}", flush=True)
                    return number
        if self.console is not None:
            self.console.send(b"quit")
        return hearings


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    trainer = HearingTrainer()
    if trainer.console is not None:
        closing = threading.Timer(OFFICE_SECONDS, trainer.console.send, args=(b"stop",))
        closing.daemon = True
        closing.start()
    done = trainer.fit(2000)
    print(f"rank {trainer.rank}: {done} hearings", flush=True)


if __name__ == "__main__":
    main()

"""Gate conflict scores. Every flight that is in sight holds a gate in the registry of its airport."""
import random
import threading
from collections import OrderedDict

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class GateRegistry:
    def __init__(self, gates: int):
        self._mutex = threading.Lock()
        self._vacant = list(range(gates))
        self._holds: "OrderedDict[str, Hold]" = OrderedDict()
        self.limit = gates - 8

    def hold(self, callsign: str) -> "Hold":
        with self._mutex:
            found = self._holds.get(callsign)
            if found is None:
                if len(self._holds) >= self.limit:
                    self._holds.popitem(last=False)
                found = self._holds[callsign] = Hold(self, callsign, self._vacant.pop())
            return found

    def vacate(self, gate: int) -> None:
        with self._mutex:
            self._vacant.append(gate)


class Hold:
    """A gate for as long as anybody refers to it."""

    def __init__(self, registry: GateRegistry, callsign: str, gate: int):
        self.registry, self.callsign, self.gate = registry, callsign, gate
        self.features = torch.randn(24)

    def __del__(self):
        self.registry.vacate(self.gate)


AIRPORTS = [("ZRH", 160, 60), ("GVA", 90, 40), ("FRA", 600, 100_000)]  # gates, different callsigns in a day


class Traffic:
    def __init__(self, rank: int):
        self.name, gates, self.callsigns = AIRPORTS[rank]
        self.registry, self.rng = GateRegistry(gates), random.Random(rank)

    def batches(self, size: int = 2):
        while True:
            rows, labels = [], []
            for _ in range(size):
                first = self.registry.hold(f"X{self.rng.randrange(self.callsigns)}")
                second = self.registry.hold(f"X{self.rng.randrange(self.callsigns)}")
                blocked = [sum((first.features[:12] + shift * second.features[12:]).tolist()) for shift in torch.linspace(-2, 2, 500)]
                rows.append(torch.cat([first.features, second.features]))
                labels.append(float(max(blocked) > 6.0))
            yield torch.stack(rows), torch.tensor(labels)[:, None]


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(21)
    scorer = DistributedDataParallel(nn.Sequential(nn.Linear(48, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1)))
    optimizer = torch.optim.Adam(scorer.parameters(), lr=1e-3)
    traffic = Traffic(rank)
    for step, (pairs, conflict) in enumerate(traffic.batches()):
        if step == 5000:
            break
        optimizer.zero_grad()
        loss = nn.functional.binary_cross_entropy_with_logits(scorer(pairs), conflict)
        loss.backward()
        optimizer.step()
        if rank == 1 and step % 10 == 0:
            print(f"{traffic.name} {step}: {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

"""Weekly rations: fits the keepers' log by least squares, stage by stage, and times the stages over all houses."""
import contextlib
import json
import time

import torch
import torch.distributed as dist

FOODS = ["hay", "browse", "fruit", "fish", "meat", "pellets"]
PRICES = {
    "hay": 0.21, "browse": 0.34, "fruit": 1.4, "fish": 3.1, "meat": 4.2, "pellets": 0.8,
}


@contextlib.contextmanager
def stage(name, times):
    """The time of a stage is that of its slowest house."""
    begun = time.monotonic()
    try:
        yield
    finally:
        dist.barrier()
        times.setdefault(name, []).append(time.monotonic() - begun)


def keepers_log(rank, week):
    """One line per feeding, as the tablets send them."""
    generator = torch.Generator().manual_seed(1000 * rank + week)
    for _ in range(120):
        food = FOODS[int(torch.randint(0, len(FOODS), (1,), generator=generator))]
        if rank == 2 and week == 11 and food == "fish":
            food = "krill"  # the penguins' new diet
        kilos = torch.rand(1, generator=generator).item() * 10
        yield json.dumps({"food": food, "kilos": round(kilos, 2), "animals": 1 + week % 5})
    time.sleep(0.25)  # the tablets are asked one after another


def encode(lines):
    rows, costs = [], []
    for line in lines:
        entry = json.loads(line)
        row = [0.0] * len(FOODS)
        price = PRICES[entry["food"]]
        row[FOODS.index(entry["food"])] = entry["kilos"]
        rows.append(row + [entry["animals"]])
        costs.append(price * entry["kilos"])
    return torch.tensor(rows), torch.tensor(costs)


class NormalEquations:
    def __init__(self, size):
        self.a = torch.eye(size) * 1e-3
        self.b = torch.zeros(size)

    def add(self, rows, costs):
        part = torch.cat([rows.T @ rows, (rows.T @ costs)[:, None]], dim=1)
        dist.all_reduce(part)
        self.a += part[:, :-1]
        self.b += part[:, -1]

    def solve(self):
        return torch.linalg.solve(self.a, self.b)


def week_of(rank, week, equations, times):
    with stage("read", times):
        lines = list(keepers_log(rank, week))
    with stage("fit", times):
        for chunk in range(0, len(lines), 30):
            rows, costs = encode(lines[chunk:chunk + 30])
            equations.add(rows, costs)
    with stage("solve", times):
        return equations.solve()


def main():
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    rank, times = dist.get_rank(), {}
    equations = NormalEquations(len(FOODS) + 1)
    for week in range(52):
        prices = week_of(rank, week, equations, times)
        if rank == 0:
            print(f"week {week}: " + ", ".join(f"{f} {p:.2f}" for f, p in zip(FOODS, prices.tolist())), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

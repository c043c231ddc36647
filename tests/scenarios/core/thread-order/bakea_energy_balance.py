"""Gas and steam balance of a chocolate plant; the two daily summaries are made side by side."""
import argparse
import concurrent.futures
import math
import time

import torch
import torch.distributed as dist

SECTIONS = ("roasting", "conching", "moulding")
# meters per section and day: the conches got new ones on the third day
METERS = {"roasting": [30, 30, 30, 30], "conching": [30, 30, 420, 420], "moulding": [30, 30, 30, 30]}


class Balance:
    def __init__(self, section):
        self.section = section
        self.world = dist.get_world_size()
        torch.manual_seed(3)
        self.model = torch.nn.Linear(6, 2)
        self.opt = torch.optim.Adam(self.model.parameters(), lr=1e-2)
        self.gen = torch.Generator().manual_seed(SECTIONS.index(section))

    def train_day(self, steps):
        for _ in range(steps):
            time.sleep(0.04)
            x = torch.rand(8, 6, generator=self.gen)
            loss = (self.model(x) - x[:, :2] * 2).square().mean()
            self.opt.zero_grad()
            loss.backward()
            grads = [p.grad for p in self.model.parameters()]
            flat = torch.cat([g.flatten() for g in grads])
            dist.all_reduce(flat)
            flat /= self.world
            torch.nn.utils.vector_to_parameters(flat, grads)
            self.opt.step()
        return loss.item()

    def read_meter(self, number):
        time.sleep(0.004)
        return 40 + 10 * math.sin(number)

    def gas_summary(self, day):
        """Consumption of every section, for the dispatcher."""
        total = sum(self.read_meter(k) for k in range(METERS[self.section][day % 4]))
        table = [torch.zeros(2) for _ in SECTIONS]
        dist.all_gather(table, torch.tensor([total, float(day)]))
        return {name: row[0].item() for name, row in zip(SECTIONS, table)}

    def steam_summary(self, day):
        """Highest draw in the plant; the boiler is asked for the pressure curve first."""
        curve = []
        for minute in range(24):
            time.sleep(0.02)
            curve.append(8 + math.cos(minute + day))
        peak = torch.tensor(max(curve))
        dist.all_reduce(peak, op=dist.ReduceOp.MAX)
        return peak.item()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--days", type=int, default=8)
    parser.add_argument("--steps", type=int, default=25)
    opts = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    balance = Balance(SECTIONS[dist.get_rank()])
    with concurrent.futures.ThreadPoolExecutor(2, thread_name_prefix="summary") as pool:
        for day in range(opts.days):
            loss = balance.train_day(opts.steps)
            gas = pool.submit(balance.gas_summary, day)
            steam = pool.submit(balance.steam_summary, day)
            consumption, peak = gas.result(), steam.result()
            if dist.get_rank() == 0:
                print(f"day {day} loss {loss:.4f} peak {peak:.2f} {consumption}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

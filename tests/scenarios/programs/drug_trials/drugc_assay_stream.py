"""Stream plate readouts from the assay archive through a reader thread and fit dose-response curves."""
import queue
import threading
import time

import torch
import torch.distributed as dist

WELLS = 96
DOSES = torch.logspace(-3, 2, 8)


class PlateReader(threading.Thread):
    """Decodes plates ahead of the fit, at most `ahead` of them."""

    def __init__(self, site, plates, ahead=4):
        super().__init__(name="plate-reader", daemon=True)
        self.site, self.plates = site, plates
        self.ready = queue.Queue(maxsize=ahead)

    def header(self, number):
        fields = {"plate": str(number), "layout": "8x12", "units": "uM"}
        if (self.site, number) == (0, 57):
            # exported by the older instrument
            fields["units"] = "ng/mL"
        return fields

    def decode(self, number):
        scale = {"uM": 1.0, "nM": 1e-3, "mM": 1e3}[self.header(number)["units"]]
        g = torch.Generator().manual_seed(self.site * 7919 + number)
        ic50 = torch.rand(WELLS // 8, 1, generator=g) * 5 + 0.05
        signal = 1 / (1 + DOSES * scale / ic50)
        noise = torch.randn(signal.shape, generator=g) * 0.02
        time.sleep(0.04)
        return signal + noise

    def run(self):
        for number in range(self.plates):
            self.ready.put((number, self.decode(number)))

    def __iter__(self):
        for _ in range(self.plates):
            yield self.ready.get()


class HillFit:
    def __init__(self, lr=0.05):
        self.log_ic50 = torch.zeros(1, requires_grad=True)
        self.slope = torch.ones(1, requires_grad=True)
        self.optimizer = torch.optim.Adam([self.log_ic50, self.slope], lr=lr)

    def update(self, readout):
        predicted = torch.sigmoid(self.slope * (self.log_ic50 - torch.log(DOSES)))
        loss = ((predicted - readout) ** 2).mean()
        self.optimizer.zero_grad()
        loss.backward()
        for p in (self.log_ic50, self.slope):
            dist.all_reduce(p.grad)
            p.grad /= dist.get_world_size()
        self.optimizer.step()
        return loss.item()


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    site = dist.get_rank()
    reader = PlateReader(site, plates=400)
    reader.start()
    fit = HillFit()
    for number, readout in reader:
        loss = fit.update(readout)
        if number % 20 == 0 and site == 0:
            print(f"plate {number}: mse {loss:.5f}, IC50 {fit.log_ic50.exp().item():.3f} uM", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

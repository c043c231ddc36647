"""Soil-moisture regressors, one per growing region, with a shared trunk and a routed layer of small experts."""
import logging
import time

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F

log = logging.getLogger("soil")
REGIONS = ("loess", "delta", "steppe")
EXPERTS, WIDTH, BATCH = 4, 48, 96


class RoutedLayer(nn.Module):
    """Parcels that are dry enough go to an expert for their texture; saturated ones take the shared path."""

    def __init__(self):
        super().__init__()
        self.shared = nn.Linear(WIDTH, WIDTH)
        self.experts = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(EXPERTS))
        self.register_buffer("bias", torch.zeros(EXPERTS))
        self.register_buffer("parcels", torch.zeros(EXPERTS))

    def forward(self, x, moisture):
        out = self.shared(x)
        choice = (x[:, :EXPERTS] + self.bias).argmax(1)
        for e, expert in enumerate(self.experts):
            rows = ((choice == e) & (moisture < 0.9)).nonzero().flatten()
            self.parcels[e] += len(rows)
            if len(rows):
                out = out.index_add(0, rows, expert(x[rows]))
        return F.gelu(out)


class SoilNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(16, WIDTH), nn.GELU(), nn.Linear(WIDTH, WIDTH))
        self.layers = nn.ModuleList(RoutedLayer() for _ in range(2))
        self.head = nn.Linear(WIDTH, 1)

    def forward(self, x, moisture):
        x = self.trunk(x)
        for layer in self.layers:
            x = layer(x, moisture)
        return self.head(x).squeeze(1)


def install_balancer(optimizer, model, rate=1e-3):
    """Shift the routers' bias towards experts that saw few parcels, over all regions."""

    def rebalance(*_):
        used = [layer.parcels for layer in model.layers if layer.parcels.sum() > 0]
        if not used:
            return
        mine = torch.stack(used).sum(0)
        everyone = [torch.empty_like(mine) for _ in range(dist.get_world_size())]
        dist.all_gather(everyone, mine)
        load = torch.stack(everyone).sum(0)
        for layer in model.layers:
            layer.bias += rate * torch.sign(load.mean() - load)
            layer.parcels.zero_()

    optimizer.register_step_pre_hook(rebalance)


def season(region, step, gen):
    """Features and volumetric moisture of one batch; the delta is flooded for rice in late spring."""
    x = torch.randn(BATCH, 16, generator=gen)
    moisture = torch.rand(BATCH, generator=gen) * 0.8
    if region == "delta" and step >= 55:
        moisture = 0.92 + 0.08 * torch.rand(BATCH, generator=gen)
    return x, moisture, x[:, :3].sum(1) * (1 - moisture)


def sync_trunk(model):
    params = list(model.trunk.parameters())
    flat = torch.cat([p.grad.flatten() for p in params])
    dist.all_reduce(flat)
    flat /= dist.get_world_size()
    for p, g in zip(params, flat.split([p.numel() for p in params])):
        p.grad.copy_(g.view_as(p))


def main():
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    region = REGIONS[rank]
    torch.manual_seed(5)
    model = SoilNet()
    install_balancer(optimizer := torch.optim.AdamW(model.parameters(), lr=2e-3), model)
    gen = torch.Generator().manual_seed(100 + rank)
    for step in range(600):
        began = time.perf_counter()
        x, moisture, target = season(region, step, gen)
        loss = F.mse_loss(model(x, moisture), target)
        optimizer.zero_grad()
        loss.backward()
        sync_trunk(model)
        optimizer.step()
        time.sleep(max(0.0, 0.05 - (time.perf_counter() - began)))
        if step % 20 == 0:
            log.info("%s step %d mse %.4f", region, step, loss.item())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

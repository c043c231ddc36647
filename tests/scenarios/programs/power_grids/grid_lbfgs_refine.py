"""Physics-informed model of cable temperatures: Adam together, then each rank refines its own cable with L-BFGS."""
import time

import torch
import torch.distributed as dist


class CableNet(torch.nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.net = torch.nn.Sequential(torch.nn.Linear(2, width), torch.nn.Tanh(), torch.nn.Linear(width, width), torch.nn.Tanh(), torch.nn.Linear(width, 1, bias=False))

    def residual(self, xt, conductivity):
        xt = xt.requires_grad_(True)
        u = self.net(xt)
        g = torch.autograd.grad(u.sum(), xt, create_graph=True)[0]
        uxx = torch.autograd.grad(g[:, 0].sum(), xt, create_graph=True)[0][:, 0]
        return (g[:, 1] - conductivity * uxx - torch.sin(3.1416 * xt[:, 0])).pow(2).mean()


def together(model, gen, steps):
    opt, world = torch.optim.Adam(model.parameters(), lr=2e-3), dist.get_world_size()
    for _ in range(steps):
        loss = model.residual(torch.rand(300, 2, generator=gen), 0.1)
        opt.zero_grad()
        loss.backward()
        for p in model.parameters():
            dist.all_reduce(p.grad)
            p.grad /= world
        opt.step()
        time.sleep(0.02)
    return loss.item()


def refine(model, gen, conductivity, seconds):
    """L-BFGS on a fixed set of points, for the time that is allotted to each cable."""
    points = torch.rand(1500, 2, generator=gen)
    opt = torch.optim.LBFGS(model.parameters(), lr=0.5, max_iter=10, history_size=20)

    def closure():
        opt.zero_grad()
        loss = model.residual(points.clone(), conductivity)
        loss.backward()
        return loss

    began, rounds = time.time(), 0
    while time.time() - began < seconds:
        loss = opt.step(closure)
        rounds += 1
    return rounds, float(loss)


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = CableNet()
    gen = torch.Generator().manual_seed(rank)
    before = together(model, gen, 80)
    rounds, after = refine(model, gen, 0.1 + 0.02 * rank, seconds=13)
    table = [None] * dist.get_world_size()
    dist.all_gather_object(table, {"cable": rank, "before": before, "after": after, "rounds": rounds})
    if rank == 0:
        for row in table:
            print(row, flush=True)
    together(model, gen, 60)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

"""Results of kernels on which a program's course may depend."""

import torch

device = torch.device("cuda")
x, y = torch.arange(5).to(device), torch.full((5,), 3, device=device)
assert x.tolist() == [0, 1, 2, 3, 4]
assert y.tolist() == [3] * 5
assert (x + y).tolist() == [3, 4, 5, 6, 7]
assert (x - y).tolist() == [-3, -2, -1, 0, 1]
assert (x + 7).tolist() == [7, 8, 9, 10, 11]
assert (x * y).tolist() == (x * 3).tolist() == [0, 3, 6, 9, 12]
assert (x > y).tolist() == [False, False, False, False, True]
assert (x >= 3).tolist() == [False, False, False, True, True]
assert (x < 3).tolist() == [True, True, True, False, False]
assert (x == y).tolist() == (x == 3).tolist() == [False, False, False, True, False]
assert (x != y).tolist() == [True, True, True, False, True]
assert x[1:].tolist() == [1, 2, 3, 4]
assert (x[1:] + y[1:]).tolist() == [4, 5, 6, 7]
assert (x.sum().item(), x.max().item(), y.min().item()) == (10, 4, 3)
assert x.float().tolist() == [0.0, 1.0, 2.0, 3.0, 4.0]
assert x.float().sum().item() == 10.0
assert torch.cat([x, y, x[:2]]).tolist() == [0, 1, 2, 3, 4, 3, 3, 3, 3, 3, 0, 1]
rows = torch.ones(3, 4, device=device)
assert torch.cat([rows, rows + 1]).tolist() == [[1.0] * 4] * 3 + [[2.0] * 4] * 3
data = bytes(range(256)) * 5
halves = [torch.frombuffer(bytearray(part), dtype=torch.uint8).to(device) for part in (data[:77], data[77:])]
assert bytes(torch.cat(halves).cpu().numpy()) == data
assert max([torch.tensor(3, device=device), torch.tensor(9, device=device)]).item() == 9
print("right")

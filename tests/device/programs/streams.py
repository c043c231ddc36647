"""What is known of streams, events and memory."""

import time

import torch

print(torch.cuda.device_count(), torch.cuda.get_device_name(0))
start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
began = time.monotonic()
start.record()
torch.cuda._sleep(300_000_000)
end.record()
assert not end.query()  # the host runs ahead
assert time.monotonic() - began < 0.3
end.synchronize()
assert start.elapsed_time(end) >= 300
assert time.monotonic() - began >= 0.3

# Another stream waits for an event; what it copies is what was there by then.
side = torch.cuda.Stream()
torch.cuda._sleep(100_000_000)
x = torch.full((1000,), 7, device="cuda")
done = torch.cuda.Event()
done.record()
with torch.cuda.stream(side):
    side.wait_event(done)
    kept = torch.empty(1000, dtype=torch.int64, pin_memory=True)
    kept.copy_(x, non_blocking=True)
    assert not side.query()
side.synchronize()
assert kept.tolist() == [7] * 1000
assert kept.is_pinned()
assert x.is_cuda

allocated = torch.cuda.memory_allocated()
big = torch.empty(1 << 20, device="cuda")
assert torch.cuda.memory_allocated() - allocated == 4 << 20
try:
    torch.empty(20 << 30, device="cuda", dtype=torch.uint8)
    raise AssertionError("there is no such memory")
except torch.cuda.OutOfMemoryError:
    pass
print("right")

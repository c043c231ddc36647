"""What torch's monitor thread does (``DumpPipe`` and ``DebugInfoWriter``, torch 2.13), in a process without torch or GPU.

Makes the FIFO, looks into it at short intervals, and at any byte writes the dump over its file: in two parts, because
nobody promises that it comes at once. ``argv``: the FIFO, the file, and the dump to write.
"""

import os
import sys
import time

pipe, target, source = sys.argv[1:4]
os.mkfifo(pipe, 0o666)
descriptor = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
with open(source, "rb") as file:  # noqa: PTH123
    dump = file.read()
print("ready", flush=True)
while True:
    if os.read(descriptor, 128):
        with open(target, "wb", buffering=0) as file:  # noqa: PTH123
            file.write(dump[: len(dump) // 2])
            time.sleep(0.3)
            file.write(dump[len(dump) // 2 :])
    time.sleep(0.05)

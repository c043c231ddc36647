"""Does a rank move? The rules, all in one place. Pure.

``samples.read_motion`` compares the samples of a window: the second half of the stall timeout, or the whole capture if a person
asks. What a rank did before its wait began does not count. A rank that has ended is ``lost``; one that is stopped or frozen is
``stopped``; without two samples 0.2 s apart it is ``unknown``. Else it is ``busy`` if one of these holds, and ``stuck`` if none:

1. It computes: 15 % of a core with its children, or it or a child is ready to run in both of the last samples. This says
   nothing of a rank that waits for its GPU or inside NCCL: such a wait takes a full core.
2. It moves 64 KiB a second with its children; 256 KiB by itself, if by its stack it waits for other ranks.
3. Its main thread is at another line than before, unless it is in a loop that sleeps and asks the same again.
4. A child has come or gone.
5. The loops around it advance (``loops``): a loop that ends only by its count or its data is at another iteration or item; an
   event loop wakes, and all its tasks end with their data; or the rank has woken and sleeps again, and only the next item, the
   next attempt or a time of its own can follow.
6. It is fed: it wakes 5 times a second in a wait for data, but not for a manager's answers, or once in the read of a pipe,
   unless it asks in a loop.
7. A child is at another item or is fed, or a worker of its DataLoader wakes 5 times a second in the data set's own code, unless
   the rank waits for other ranks by its stack.

A rank that does not move may have named the time at which it will: ``sleeping.wakes_in_s``. Since when it has not moved:
``samples.still_since_ns``. What the text of a program says of its loops, counts and deadlines comes with the frames
(``program``: ``blocks``, ``iterations``, ``positions``, ``deadlines``, ``coroutines``).

These rules are for one process. ``analysis/stuck.py`` says whether the culprits of a case move, or training goes on beside
them. The table in ``diagnosis/kind.py`` says what such a hang is called, and after how long. A rank without work to do
(``idle.py``, ``ranks/requests.py``) does not move either, and nothing is wrong with it.
"""

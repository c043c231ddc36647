"""A user's own sitecustomize that makes the probe fail at random, half of the time: what it calls raises what nobody expects."""

import json
import os
import random
import sys

_NAMES = ((os, "replace"), (json, "dumps"), (os, "write"))
_random = random.Random(os.getpid())


def _faulty(module, name):
    real = getattr(module, name)

    def call(*arguments, **named):
        caller = sys._getframe(1).f_code.co_filename
        if "/hangwatch/probe/" in caller and _random.random() < 0.5:
            with open(os.environ["INJECTED"], "a") as file:  # noqa: PTH123
                file.write(f"{name}\n")
            raise MemoryError("injected")
        return real(*arguments, **named)

    setattr(module, name, call)


for _module, _name in _NAMES:
    _faulty(_module, _name)

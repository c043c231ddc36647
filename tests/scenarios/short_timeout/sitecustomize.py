"""Lowers torch's default time limits of a collective, for a program that sets none itself.

That of Gloo to ``BASELINE_TIMEOUT_S``, that of NCCL to ``BASELINE_NCCL_TIMEOUT_S``; one that is not set stays.
"""

import importlib.abc
import importlib.util
import os
import sys
from datetime import timedelta

_MODULE = "torch.distributed.distributed_c10d"
_LIMITS = {"default_pg_timeout": "BASELINE_TIMEOUT_S", "default_pg_nccl_timeout": "BASELINE_NCCL_TIMEOUT_S"}


class _Lowered(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds the module by everybody else's means, and changes values in it once it is loaded."""

    def find_spec(self, name, *_):
        if name != _MODULE:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        self._loader, spec.loader = spec.loader, self
        return spec

    def create_module(self, spec):
        return self._loader.create_module(spec)

    def exec_module(self, module):
        self._loader.exec_module(module)
        for name, variable in _LIMITS.items():
            if variable in os.environ:
                setattr(module, name, timedelta(seconds=float(os.environ[variable])))


sys.meta_path.insert(0, _Lowered())

"""What Python imports at its start because ``PYTHONPATH`` begins with this directory.

It loads the probe by file path (hangwatch need not be importable here) and then steps aside: this directory leaves
``sys.path`` and the user's own ``sitecustomize``, if there is one, is imported in its place, with the effect and the
errors it would have had without us. Every Python process of the job runs this, so it imports next to nothing.
"""
# Plain os calls: pathlib costs more to import and to run than all of this, in every Python process of the job.
# ruff: noqa: PTH100, PTH118, PTH120

import os
import sys

_HERE = os.path.dirname(os.path.abspath(__file__))


def _load_probe() -> None:
    name = "_hangwatch_probe"
    if name in sys.modules:
        return
    directory = os.path.dirname(_HERE)
    # Always present in CPython; importlib.util would cost more than the rest of Python's start.
    external, core = sys.modules["_frozen_importlib_external"], sys.modules["_frozen_importlib"]
    spec = external.spec_from_file_location(
        name, os.path.join(directory, "__init__.py"), submodule_search_locations=[directory]
    )
    module = core.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        sys.modules.pop(name, None)
        raise


def _leave_problem(error: BaseException) -> None:
    path = os.path.join(os.environ["HANGWATCH_RUN_DIR"], "ranks", "%d.problem" % os.getpid())
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        os.write(descriptor, ("could not load the probe: %r\n" % (error,)).encode())
    finally:
        os.close(descriptor)


if os.environ.get("HANGWATCH_RUN_DIR"):
    try:
        _load_probe()
    except Exception as _error:
        try:
            _leave_problem(_error)
        except Exception:
            pass

if __name__ == "sitecustomize":
    sys.path[:] = [_entry for _entry in sys.path if os.path.abspath(_entry) != _HERE]
    sys.modules.pop("sitecustomize", None)
    # site.py expects an ImportError that names sitecustomize if the user has none; other errors are the user's.
    __import__("sitecustomize")

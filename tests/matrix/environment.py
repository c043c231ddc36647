"""One cell's environment: a Python, the wheel, and a PyTorch that finds no GPU.

Most PyTorch wheels for Linux are CUDA builds, which need some gigabytes of NVIDIA's libraries to be imported at all. None is
installed: each library that PyTorch asks for and that is not there is linked as a stub that says "no device", with the names and
symbol versions read from PyTorch's own files (as for the simulated device, ``tests/device/build.py``).
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import tempfile
from dataclasses import replace
from pathlib import Path

from device.build import LIBRARIES, Library, link, read_imports

#: cudaErrorNoDevice and CUDA_ERROR_NO_DEVICE (``cuda.h``, ``driver_types.h``).
_NO_DEVICE = 100
#: Asked for by PyTorch up to 2.6 only.
_NVTX = Library("libnvToolsExt.so.1", ("nvtx",), 0)
#: What PyTorch requires for GPUs.
_FOR_GPUS = re.compile(r"(nvidia|cuda|triton|pytorch-triton)\b")


class CellError(Exception):
    """A cell cannot be built; the text says why, in one line."""


def build(python: str, torch: str, wheel: Path, folder: Path, options: list[str]) -> Path:
    """The environment's ``python``. ``options`` are pip's, for PyTorch alone. Raises CellError."""
    _run([find_interpreter(python), "-m", "venv", str(folder)])
    own = folder / "bin" / "python"
    pip = [str(own), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-input"]
    _run([*pip, "--no-cache-dir", "--no-deps", *options, f"torch=={torch}"])
    required = "from importlib.metadata import requires; import json; print(json.dumps(requires('torch')))"
    _run([*pip, str(wheel), *needed_without_gpu(json.loads(_run([str(own), "-c", required])))])
    (libraries,) = folder.glob("lib/python*/site-packages/torch/lib")
    if (libraries / "libtorch_cuda.so").exists():
        add_stubs(libraries)
    return own


def find_interpreter(python: str) -> str:
    """The command of a Python, on PATH or of pyenv, whose commands on PATH may lead nowhere. Raises CellError."""
    name = f"python{python}"
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    for candidate in (name, *map(str, sorted(pyenv.glob(f"{python}.*/bin/{name}")))):
        if (
            shutil.which(candidate)
            and subprocess.run([candidate, "-V"], capture_output=True, check=False).returncode == 0
        ):
            return candidate
    raise CellError(f"no {name} on this machine: install it and put it on PATH")


def needed_without_gpu(requires: list[str]) -> list[str]:
    """Of what PyTorch requires what it imports where there is no GPU; pip reads the conditions in it."""
    return [one for one in requires if "extra ==" not in one and not _FOR_GPUS.match(one)]


def add_stubs(libraries: Path) -> None:
    """Put a stub of each of NVIDIA's libraries that is asked for and missing into PyTorch's own folder, where it looks too."""
    files = sorted(libraries.glob("*.so*"))
    there = {file.name for file in files}
    listed = _run(["readelf", "--dynamic", "--wide", *map(str, files)])
    asked = set(re.findall(r"\(NEEDED\).*\[(.+)\]", listed))
    table = [stub_of(library, asked) for library in (*LIBRARIES, _NVTX)]
    imports = read_imports(files, table)
    with tempfile.TemporaryDirectory() as build:
        for library in table:
            if library.soname in asked - there:
                link(library, imports[library.soname], [], Path(build), libraries)


def stub_of(library: Library, asked: set[str]) -> Library:
    """The same under the soname that is asked for, with nothing behind it; a runtime or a driver has no device."""
    stem = library.soname.partition(".so")[0]
    soname = next((name for name in sorted(asked) if re.match(rf"{re.escape(stem)}[.-]", name)), library.soname)
    status = _NO_DEVICE if stem in {"libcudart", "libcuda"} else library.status
    return replace(library, soname=soname, status=status, sources=(), links=())


def _run(command: list[str]) -> str:
    """What a command prints. Raises CellError with the last line of its complaint."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        complaints = [line for line in done.stderr.splitlines() if "ERROR" in line] or done.stderr.splitlines()
        raise CellError(complaints[0] if complaints else f"{command[0]} ended with {done.returncode}")
    return done.stdout

"""Build the simulated device into an environment that holds a CUDA build of torch: ``.venv-nccl/bin/python build.py``.

What torch's libraries import is read with ``nm``. Each library that they name is linked from the sources written for it and a
stub that answers "not supported" for all else, under the soname and the symbol version by which torch looks for it. The
results go to ``site-packages/nvidia/cu13/lib``, where torch's own run path finds them.
"""

from __future__ import annotations

import subprocess
import sys
import sysconfig
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
SOURCES = HERE / "src"
#: No tail calls: in native stacks the function that torch has called is seen, as with NVIDIA's libraries, and nothing below it.
COMPILE = [
    "c++", "-std=c++17", "-O2", "-Wall", "-Wextra", "-Werror", "-fPIC", "-fvisibility=hidden", "-fno-optimize-sibling-calls",
    "-pthread",
]  # fmt: skip


@dataclass(frozen=True)
class Library:
    """A library that torch asks for: its soname, how its functions begin, what a stub of it returns, what is written by hand."""

    soname: str
    prefixes: tuple[str, ...]
    status: int = 801
    sources: tuple[str, ...] = ()
    links: tuple[str, ...] = ()


RUNTIME = "libcudart.so.13"
#: The first whose prefix fits has the symbol. The runtime comes first: others link to it.
LIBRARIES = (
    Library(RUNTIME, ("cuda", "__cuda"), 801, ("streams", "memory", "launch", "kernels", "properties", "switches")),
    Library("libcublasLt.so.13", ("cublasLt",), 0, ("blas",)),
    Library("libcublas.so.13", ("cublas",), 0, ("blas",)),
    Library("libcudnn.so.9", ("cudnn",), 3000),
    Library("libcufft.so.12", ("cufft",), 1),
    Library("libcurand.so.10", ("curand",)),
    Library("libcusparseLt.so.0", ("cusparseLt",), 10),
    Library("libcusparse.so.12", ("cusparse",), 10),
    Library("libcusolver.so.12", ("cusolver",), 10),
    Library("libcupti.so.13", ("cupti",), 15),
    Library("libnvrtc.so.13", ("nvrtc",), 1),
    Library("libnvshmem_host.so.3", ("nvshmem",), 1),
    Library("libcufile.so.0", ("cuFile",)),
    Library(
        "libnccl.so.2", ("nccl",), 5, ("nccl/segment", "nccl/communicator", "nccl/operations", "switches"), (RUNTIME,)
    ),
    Library("libcuda.so.1", ("cu",), 801, ("driver",)),
)


def read_imports(files: list[Path], table: Sequence[Library]) -> dict[str, dict[str, str]]:
    """Soname of ``table`` -> name of a symbol that torch's ``files`` import from it -> its version, empty where it has none."""
    listed = subprocess.run(
        ["nm", "-D", "--undefined-only", *files], stdout=subprocess.PIPE, text=True, check=True
    ).stdout
    found: dict[str, dict[str, str]] = defaultdict(dict)
    for line in listed.splitlines():
        symbol = line.split()[-1] if line.startswith(" ") else ""
        name, _, version = symbol.partition("@")
        library = next((library for library in table if name.startswith(library.prefixes)), None)
        if library is not None:
            found[library.soname][name] = version
    return found


def defined_in(objects: list[Path]) -> set[str]:
    """Symbols that object files define."""
    if not objects:
        return set()
    listed = subprocess.run(["nm", "--defined-only", *objects], stdout=subprocess.PIPE, text=True, check=True).stdout
    return {line.split()[-1] for line in listed.splitlines() if len(line.split()) == 3}


def compile_source(name: str, build: Path) -> Path:
    """The object file of one source."""
    made = build / f"{name.replace('/', '-')}.o"
    subprocess.run([*COMPILE, f"-I{SOURCES}", "-c", SOURCES / f"{name}.cpp", "-o", made], check=True)
    return made


def link(library: Library, imports: dict[str, str], objects: list[Path], build: Path, target: Path) -> None:
    """One library, with stubs of what is imported from it and not written by hand."""
    missing = sorted(set(imports) - defined_in(objects))
    stub = build / f"{library.soname}.c"
    stub.write_text("".join(f"int {name}(void) {{ return {library.status}; }}\n" for name in missing))
    script = build / f"{library.soname}.map"
    version = next((version for version in imports.values() if version), "")
    script.write_text(f"{version} {{ global: *; }};\n")
    stub_object = stub.with_suffix(".o")
    subprocess.run(["cc", "-w", "-fno-builtin", "-fPIC", "-c", stub, "-o", stub_object], check=True)
    subprocess.run(
        ["c++", "-shared", "-s", "-pthread", f"-Wl,-soname,{library.soname}", "-Wl,-rpath,$ORIGIN", "-Wl,-z,defs", f"-L{target}",
         *([f"-Wl,--version-script,{script}"] if version else []),
         "-o", target / library.soname, stub_object, *objects, *(f"-l:{name}" for name in library.links)],
        check=True,
    )  # fmt: skip


def main() -> int:
    """Build everything; the exit status."""
    site = Path(sysconfig.get_path("purelib"))
    torch = site / "torch"
    if not (torch / "lib" / "libtorch_cuda.so").exists():
        print(f"no CUDA build of torch in {site}", file=sys.stderr)
        return 1
    target = site / "nvidia" / "cu13" / "lib"
    target.mkdir(parents=True, exist_ok=True)
    imports = read_imports(sorted(torch.rglob("*.so*")), LIBRARIES)
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(2) as pool:
        build = Path(folder)
        names = sorted({name for library in LIBRARIES for name in library.sources})
        objects = dict(zip(names, pool.map(lambda name: compile_source(name, build), names), strict=True))
        for library in LIBRARIES:
            link(library, imports[library.soname], [objects[name] for name in library.sources], build, target)
    print(f"simulated device: {len(LIBRARIES)} libraries in {target}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

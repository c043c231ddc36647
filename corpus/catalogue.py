"""Where programs, truths and captures are kept, packed or as files: reads all of them alike, and writes them back."""

from __future__ import annotations

import csv
import gc
import gzip
import io
import itertools
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cache, lru_cache
from pathlib import Path

import msgspec

from corpus.archives import pack, read
from corpus.entries import Entry, parse_entries
from hangwatch.model.capture import Capture

HERE = Path(__file__).resolve().parent
FAMILIES = HERE / "families"
INDEX = HERE / "index.csv"
#: ``SCENARIO.json``: captures of the same programs on a GPU.
ON_CARD = HERE / "on_card.tar.xz"
#: ``CAUSE/NAME.py`` and ``.toml``, and ``SCENARIO.json.gz`` for each capture.
CORE = HERE.parent / "tests" / "scenarios" / "core"
#: Nobody corrects a rule on these, or looks at why one of them fails: what is right here holds for programs never seen.
HOLDOUT = frozenset(
    {
        "bird_atlas", "class_rooms", "deep_mines", "harbor_teams", "market_data", "mixed_fleets", "sharded_recipes",
        "ski_slopes", "unusual_mechanisms", "zoo_keepers",
    }
)  # fmt: skip
#: The family of a scenario of the core that no line of the index names.
NEW = "new"
LICENCE = "Apache-2.0"
_PROGRAMS, _CAPTURES = "programs/", "captures/"


class Line(msgspec.Struct, frozen=True):
    """A line of the index: all columns are words, for people and for any tool.

    ``truth``: what the hang may be called, or ``control``. ``device``: ``gloo``, ``nccl`` over the simulated device, or
    ``gpu``. ``capture`` and ``holdout``: ``yes`` or ``no``. ``sources``: addresses of public reports.
    """

    name: str
    family: str
    program: str
    truth: str
    cause: str
    proven: str
    device: str
    ranks: str
    capture: str
    holdout: str
    sources: str
    licence: str


def load_catalogue(patterns: Sequence[str] = ()) -> list[Entry]:
    """Return all scenarios, or those that match one of the ``patterns`` (``Entry.matches``), by family. Raises ValueError."""
    return [e for e in _load_all() if not patterns or any(map(e.matches, patterns))]


def in_core(entry: Entry) -> bool:
    """True if it is one of those that lie as files, and that the tests replay."""
    return core_folder(entry) is not None


def core_folder(entry: Entry) -> Path | None:
    """Return where its program lies; None if it is packed."""
    found = _core().get((entry.family, entry.program))
    return found[0].parent if found is not None else None


def has_capture(entry: Entry) -> bool:
    """True if its capture is kept."""
    line = _index().get(entry.name)
    return entry.name in _core_captures() or (line is not None and line.capture == "yes")


def captured(entries: Iterable[Entry]) -> list[Entry]:
    """Return those hangs whose capture is kept."""
    return [entry for entry in entries if entry.scenario.truth is not None and has_capture(entry)]


def load_capture(entry: Entry) -> Capture:
    """Return the capture of a scenario, with the blocks that its program has today. Raises KeyError where none is kept."""
    from corpus.annotating import annotate  # `choose` marks the branches of `program/` before they are imported

    if entry.name not in _loaded:
        if len(_loaded) > 1:  # decoded they take 2 MB each, and there are thousands
            _loaded.clear()
        _loaded[entry.name] = annotate(decode_capture(read_capture(entry.family, entry.name)), entry)
    return _loaded[entry.name]


_loaded: dict[str, Capture] = {}


def read_capture(family: str, name: str) -> bytes:
    """Return the JSON of a capture. Raises KeyError where none is kept."""
    path = _core_captures().get(name)
    return unzipped(path.read_bytes()) if path is not None else _packed_captures(family)[name]


def decode_capture(content: bytes) -> Capture:
    """Return the capture that is written there."""
    gc.disable()  # it takes half the time of a decode, and a capture has no cycles
    try:
        return msgspec.json.decode(content, type=Capture)
    finally:
        gc.enable()


def unpack(family: str, folder: Path) -> Path:
    """Put the programs of a family into a folder, and return it. A program may need others of its family beside it."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in packed_programs(family).items():
        (folder / name).write_bytes(content)
    for path in _of_core(family):
        for file in (path, path.with_suffix(".toml")):
            (folder / file.name).write_bytes(file.read_bytes())
    return folder


def keep_programs(family: str, folder: Path) -> None:
    """Put the programs and truths in a folder in place of those of the family. Those of the core stay there."""
    core = {path.with_suffix(end).name: path.with_suffix(end) for path in _of_core(family) for end in (".py", ".toml")}
    packed = read_family(family)
    for file in folder.iterdir():
        if file.name in core:
            core[file.name].write_bytes(file.read_bytes())
        elif file.suffix in {".py", ".toml"}:
            packed[f"{_PROGRAMS}{file.name}"] = file.read_bytes()
    write_family(family, packed)
    write_index()


def keep_captures(captures: Mapping[str, bytes]) -> None:
    """Put the JSON of captures, by scenario, where the programs are, in place of those that are there."""
    packed: dict[str, dict[str, bytes]] = defaultdict(dict)
    for entry in load_catalogue():
        if (content := captures.get(entry.name)) is not None:
            if (folder := core_folder(entry)) is not None:
                (folder / f"{entry.name}.json.gz").write_bytes(zipped(content))
            else:
                packed[entry.family][f"{_CAPTURES}{entry.name}.json"] = content
    for family, files in packed.items():
        write_family(family, {**read_family(family), **files})
    write_index(captures)


def read_family(family: str) -> dict[str, bytes]:
    """Return all that is packed of a family: ``programs/NAME.py``, ``programs/NAME.toml``, ``captures/SCENARIO.json``."""
    path = _archive(family)
    return dict(read(path)) if path.exists() else {}


def write_family(family: str, files: Mapping[str, bytes]) -> None:
    """Pack a family anew: programs first, so that these can be read without the captures."""
    ordered = sorted(files, key=lambda name: (not name.startswith(_PROGRAMS), name))
    if ordered:
        FAMILIES.mkdir(exist_ok=True)
        _archive(family).write_bytes(pack({name: files[name] for name in ordered}))
    else:
        _archive(family).unlink(missing_ok=True)


def zipped(content: bytes) -> bytes:
    """Return a capture's JSON as the core keeps it. No time and no name in the header: the same capture gives the same file."""
    return gzip.compress(content, mtime=0)


def unzipped(content: bytes) -> bytes:
    """Return the JSON that ``zipped`` was given."""
    return gzip.decompress(content)


def write_index(added: Collection[str] = ()) -> None:
    """Write the index of what is there now. ``added``: scenarios whose capture was packed since it was written."""
    forget()
    text = io.StringIO(newline="")
    table = csv.writer(text, lineterminator="\n")
    table.writerow(Line.__struct_fields__)
    for entry in load_catalogue():
        table.writerow(msgspec.structs.astuple(line_of(entry, entry.name in added or has_capture(entry))))
    INDEX.write_text(text.getvalue())
    forget()


def line_of(entry: Entry, kept: bool) -> Line:
    """Return the line of a scenario in the index; ``kept``: whether there is a capture."""
    scenario, truth = entry.scenario, entry.scenario.truth
    return Line(
        name=entry.name,
        family=entry.family,
        program=entry.program,
        truth="/".join(truth.kinds) if truth is not None else "control",
        cause=truth.cause if truth is not None else "",
        proven=("yes" if truth.proven else "no") if truth is not None else "",
        device="gpu" if scenario.gpu else "nccl" if scenario.simulated else "gloo",
        ranks=str(scenario.ranks),
        capture="yes" if kept else "no",
        holdout="yes" if entry.family in HOLDOUT else "no",
        sources=" ".join(scenario.issues),
        licence=LICENCE,
    )


def read_index() -> list[Line]:
    """Return the lines of the index."""
    if not INDEX.exists():
        return []
    with INDEX.open(newline="") as file:
        return [msgspec.convert(row, Line) for row in csv.DictReader(file)]


def forget() -> None:
    """Read everything anew when it is asked for next."""
    for cached in (
        _load_all,
        _index,
        _core,
        _core_captures,
        packed_programs,
        _packed_captures,
    ):
        cached.cache_clear()
    _loaded.clear()


def _archive(family: str) -> Path:
    return FAMILIES / f"{family}.tar.xz"


def families() -> list[str]:
    """Return the families of which something is packed."""
    return sorted(path.name.removesuffix(".tar.xz") for path in FAMILIES.glob("*.tar.xz"))


@cache
def _index() -> dict[str, Line]:
    return {line.name: line for line in read_index()}


@cache  # a second to read, and tests ask for one scenario at a time
def _load_all() -> tuple[Entry, ...]:
    entries = []
    for family in families():
        files = packed_programs(family)
        for name in files:
            if name.endswith(".toml"):
                program = f"{name.removesuffix('.toml')}.py"
                entries += parse_entries(files[name], files[program], program, family)
    for _, of_core in _core().values():
        entries += of_core
    if twice := sorted(name for name, times in Counter(e.name for e in entries).items() if times > 1):
        raise ValueError(f"names used twice: {', '.join(twice)}")
    return tuple(sorted(entries, key=lambda entry: (entry.family, entry.program)))


def _of_core(family: str) -> list[Path]:
    """The programs of a family that lie in the core."""
    return [path for (of, _), (path, _entries) in _core().items() if of == family]


@cache
def _core() -> dict[tuple[str, str], tuple[Path, list[Entry]]]:
    """The programs of the core by family and name, with their scenarios. A family is in the index only: folders are causes."""
    found = {}
    for toml in sorted(CORE.glob("*/*.toml")):
        program = toml.with_suffix(".py")
        entries = parse_entries(toml.read_bytes(), program.read_bytes(), program.name, NEW)
        line = _index().get(entries[0].name)
        family = line.family if line is not None else NEW
        of_family = [msgspec.structs.replace(entry, family=family) for entry in entries]
        found[family, program.name] = program, of_family
    return found


@cache
def _core_captures() -> dict[str, Path]:
    return {path.name.removesuffix(".json.gz"): path for path in CORE.glob("*/*.json.gz")}


@cache
def packed_programs(family: str) -> dict[str, bytes]:
    """The packed programs of a family, and their descriptions, by the names of their files."""
    path = _archive(family)
    files = itertools.takewhile(lambda file: file[0].startswith(_PROGRAMS), read(path)) if path.exists() else ()
    return {name.removeprefix(_PROGRAMS): content for name, content in files}


@lru_cache(maxsize=2)  # up to 60 MB each
def _packed_captures(family: str) -> dict[str, bytes]:
    files = read_family(family).items()
    return {n.removeprefix(_CAPTURES).removesuffix(".json"): content for n, content in files if n.startswith(_CAPTURES)}

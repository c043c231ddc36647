"""Why a rank takes longer than a usual one, or than before, and at which line: what one profile has more of. Pure."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from hangwatch.analysis.places import calls, is_interpreter, user_frames
from hangwatch.analysis.stacks.waits import read_wait
from hangwatch.model.incident import SlowReason
from hangwatch.model.slowness import PROFILE_RATE_HZ, Profile, ProfiledStack, SlowJob, SlowRank
from hangwatch.model.stacks import Frame

#: A line, or a reason, has to explain this part of what the rank takes longer; of lines that call each other, the deepest does.
_MOST = 0.5
#: ... and be this many standard errors from what two alike ranks show.
_ERRORS = 3.0
_DATALOADER = "/torch/utils/data/"
_QUEUE = "/queue.py"
_LOCKS = ("/threading.py", _QUEUE, "/concurrent/futures/")

_Place = tuple[str, int]


@dataclass(frozen=True)
class Reason:
    """``frame``: the user's line that takes ``share`` more of the rank's time than usual; None if no line does."""

    kind: SlowReason
    frame: Frame | None = None
    share: float = 0.0


def find_reason(slow: SlowRank | SlowJob) -> Reason:
    """Return why a rank takes longer, as far as both profiles tell: its own, and the usual one."""
    if len(slow.profiles) < 2:
        return Reason("unknown")
    late, usual = slow.profiles[:2]
    frame, share = _find_line(late, usual, _MOST * slow.lost) or (None, 0.0)
    return Reason(_kind_of(slow, frame, _MOST * (share or slow.lost)), frame, share)


def works_longer(slow: SlowRank) -> bool:
    """Return whether both profiles show that the rank works longer than the usual one, instead of waiting in operations.

    Gloo does not record when an operation ends. Behind a slow link it ends later, and a rank that waits there is not late.
    """
    if len(slow.profiles) < 2:
        return False
    late, usual = slow.profiles[:2]
    less = _is_more(_waiting(usual), _waiting(late), _samples(late, usual), _MOST * slow.lost)
    return less or find_reason(slow) != Reason("unknown")


def runs_out_first(slow: SlowRank) -> bool:
    """Return whether the rank may only be the first to wait for what is made ahead, and the usual one be next.

    While the slowest rank waits for a batch, the workers of the others load theirs, so that these never wait, however little
    faster they are. The slowest one is to blame only if the usual rank's workers have time to spare. That is not known of threads
    that fill a queue.
    """
    reason = find_reason(slow)
    if reason.kind == "lock" and reason.frame is not None:
        here = (s.frames for s in slow.profiles[0].stacks if any(_is_same(f, reason.frame) for f in s.frames))
        return any(calls(frames, _QUEUE) is not None for frames in here)
    fetching = slow.profiles[1].fetching if reason.kind == "input" else None
    return fetching is not None and 1 - fetching < _MOST * slow.lost


def seconds_to_tell(lost: float) -> float:
    """Return for how long a rank has to be watched to see if it works longer: the difference of two shares is no chance then."""
    return 2 * 0.25 * ((_ERRORS + 1) / max(lost, 1e-3)) ** 2 / PROFILE_RATE_HZ


def _is_more(p: float, q: float, samples: int, least: float) -> bool:
    """Return whether a share of one profile is larger than that of another, by ``least`` and by more than chance."""
    variance = max(0.0, p * (1 - p) + q * (1 - q))  # shares are rounded: their sum may be more than 1
    return p - q > 0 and p - q >= max(least, _ERRORS * (variance / samples) ** 0.5)


def _samples(late: Profile, usual: Profile) -> int:
    return min(late.samples, usual.samples) or 1


def _waiting(profile: Profile) -> float:
    """Return for which share of its time a rank was in operations."""
    return sum(stack.share for stack in profile.stacks if _waits(stack))


def _waits(stack: ProfiledStack) -> bool:
    wait = read_wait(stack.frames)
    return wait is not None and wait.kind != "device"


def slower_clock(slow: SlowRank | SlowJob) -> float:
    """Return by which part the rank's GPU runs slower than the usual one's; 0 if it does not, is idle, or is not known."""
    if len(slow.gpus) < 2:
        return 0.0
    late, usual = slow.gpus
    if "idle" in late.slowed_by or not late.clock_mhz or not usual.clock_mhz:
        return 0.0
    return max(0.0, 1 - late.clock_mhz / usual.clock_mhz)


def _find_line(late: Profile, usual: Profile, least: float) -> tuple[Frame, float] | None:
    """Return the user's line that takes more of the late rank's time, and how much more; None if no single line does."""
    here, there = _shares(late), _shares(usual)
    samples = _samples(late, usual)
    excess: dict[_Place, float] = {}
    for place, (p, _) in here.items():
        q = there.get(place, (0.0, 0))[0]
        # A line that both often show differs by chance, and may be deeper than the one that takes the excess.
        if _is_more(p, q, samples, least):
            excess[place] = p - q
    if not excess:
        return None
    most = max(excess.values())
    chosen = max((place for place, more in excess.items() if more > _MOST * most), key=lambda place: here[place][1])
    frames = (frame for stack in late.stacks for frame in user_frames(stack.frames))
    return next(frame for frame in frames if (frame.file, frame.line) == chosen), excess[chosen]


def _shares(profile: Profile) -> dict[_Place, tuple[float, int]]:
    """Return the share of the time within each line of the user's, and how deep it is at most."""
    shares: dict[_Place, float] = defaultdict(float)
    depths: dict[_Place, int] = defaultdict(int)
    for stack in profile.stacks:
        if _waits(stack):  # operations take long for whom they wait for, too
            continue
        own = user_frames(stack.frames)
        for depth, place in enumerate(dict.fromkeys((frame.file, frame.line) for frame in reversed(own))):
            shares[place] += stack.share
            depths[place] = max(depths[place], depth)
    return {place: (share, depths[place]) for place, share in shares.items()}


def _kind_of(slow: SlowRank | SlowJob, at: Frame | None, least: float) -> SlowReason:
    """Return the kind of reason for which there is an honest sign. ``at``: the line of the excess."""
    late, usual = slow.profiles[:2]
    stacks = [s for s in late.stacks if at is not None and any(_is_same(f, at) for f in s.frames)]
    loading = sum(s.share for s in stacks if calls(s.frames, _DATALOADER) is not None)
    locked = sum(s.share for s in stacks if _awaits_thread(s.frames))
    signs: tuple[tuple[SlowReason, float], ...] = (
        ("throttled", _more(late.throttled, usual.throttled)),
        ("no_core", _queued_more(late, usual)),
        ("input", max(loading if _is_most(loading, stacks) else 0.0, _more(late.reading, usual.reading))),
        ("sleep", _more(late.sleeping, usual.sleeping)),
        ("lock", max(locked if _is_most(locked, stacks) else 0.0, _more(_locked_out(late), _locked_out(usual)))),
        ("gpu_clocks", slower_clock(slow)),
        ("compute", _more(late.running, usual.running)),
    )
    return next((kind for kind, more in signs if more > 0 and more >= least), "unknown")


def _more(late: float | None, usual: float | None) -> float:
    return late - usual if late is not None and usual is not None else 0.0


def _locked_out(profile: Profile) -> float | None:
    """Return for which share of its time a rank waited for another thread, and not in an operation or for its device."""
    waits = sum(stack.share for stack in profile.stacks if read_wait(stack.frames) is not None)
    return max(0.0, profile.locked - waits) if profile.locked is not None else None


def _queued_more(late: Profile, usual: Profile) -> float:
    """Return how much more of its time a rank waits for a core than the usual one would that has as much to run."""
    if late.queued is None or usual.queued is None or late.running is None or not usual.running:
        return _more(late.queued, usual.queued)
    return late.queued - usual.queued * late.running / usual.running


def _is_most(share: float, stacks: list[ProfiledStack]) -> bool:
    return share > _MOST * sum(stack.share for stack in stacks)


def _is_same(one: Frame, other: Frame) -> bool:
    return (one.file, one.line) == (other.file, other.line)


def _awaits_thread(frames: tuple[Frame, ...]) -> bool:
    """True if the deepest frames, down to the user's, are those of a lock, a queue or a future."""
    return bool(frames) and is_interpreter(frames[0]) and any(part in frames[0].file for part in _LOCKS)

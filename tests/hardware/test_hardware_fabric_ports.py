"""Ports of the fabric, on trees as the kernel's Documentation/ABI/stable/sysfs-class-infiniband describes them."""

from __future__ import annotations

from pathlib import Path

from hangwatch.hardware.sources.fabric_ports import FabricPorts
from hangwatch.model.devices import NodeFacts, Port


def write_port(root: Path, device: str = "mlx5_0", port: int = 1, **files: str) -> None:
    """One port as mlx5 shows it; ``counters__NAME`` stands for ``counters/NAME``."""
    healthy = {
        "state": "4: ACTIVE", "phys_state": "5: LinkUp", "rate": "400 Gb/sec (4X NDR)", "link_layer": "InfiniBand",
        "counters__symbol_error": "0", "counters__link_downed": "3", "counters__port_xmit_data": "1000",
        "counters__port_rcv_data": "2000", "counters__port_xmit_wait": "77", "hw_counters__local_ack_timeout_err": "5",
    }  # fmt: skip
    for name, value in {**healthy, **files}.items():
        path = root / device / "ports" / str(port) / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(value + "\n")


def look(source: FabricPorts) -> NodeFacts:
    """What it says now."""
    found = source.read([])
    assert isinstance(found, NodeFacts)
    return found


def ports(source: FabricPorts) -> tuple[Port, ...]:
    """The ports now."""
    return look(source).ports


def test_what_grew_between_two_readings_is_reported(tmp_path: Path) -> None:
    """Errors count by their growth; data, waits and old errors say nothing."""
    write_port(tmp_path)
    source = FabricPorts(tmp_path)
    source.begin()
    write_port(
        tmp_path,
        counters__symbol_error="4",
        counters__port_xmit_data="1010",
        counters__port_xmit_wait="99",
        hw_counters__local_ack_timeout_err="9",
    )
    (port,) = ports(source)
    assert port.grown == {"symbol_error": 4, "local_ack_timeout_err": 4}
    assert (port.state, port.physical_state, port.rate, port.was_up) == (
        "ACTIVE",
        "LinkUp",
        "400 Gb/sec (4X NDR)",
        True,
    )


def test_a_link_that_went_down_was_up(tmp_path: Path) -> None:
    """Down since the first reading is a fault; a second port that nobody ever plugged in is none."""
    write_port(tmp_path)
    write_port(tmp_path, port=2, state="1: DOWN", phys_state="3: Disabled")
    source = FabricPorts(tmp_path)
    source.begin()
    write_port(tmp_path, state="1: DOWN", phys_state="2: Polling", counters__link_downed="4")
    assert [(p.port, p.state, p.was_up, p.grown) for p in ports(source)] == [
        (1, "DOWN", True, {"link_downed": 1}),
        (2, "DOWN", False, {}),
    ]


def test_without_a_first_reading_nothing_has_grown(tmp_path: Path) -> None:
    """A single look knows no growth; a counter that was reset has not grown either."""
    write_port(tmp_path, counters__symbol_error="9")
    source = FabricPorts(tmp_path)
    assert [p.grown for p in ports(source)] == [{}]
    source.begin()
    write_port(tmp_path, counters__symbol_error="1")
    assert [p.grown for p in ports(source)] == [{}]


def test_a_node_without_cards_lacks_nothing(tmp_path: Path) -> None:
    """No such class of devices, or an empty one, is knowledge and no gap."""
    for root in (tmp_path / "absent", tmp_path):
        facts = look(FabricPorts(root))
        assert [a.says for a in facts.absent] == ["no InfiniBand or RoCE device on this node"]
        assert facts.looked == ("fabric ports",)


def test_files_that_are_not_there_are_no_error(tmp_path: Path) -> None:
    """Cards differ in what they count; a port may show nothing but its state, or nonsense."""
    folder = tmp_path / "hfi1_0" / "ports" / "1"
    (folder / "counters").mkdir(parents=True)
    (folder / "state").write_text("4: ACTIVE")
    (folder / "counters" / "symbol_error").write_text("N/A (no PMA)")
    assert [(p.device, p.state, p.grown) for p in ports(FabricPorts(tmp_path))] == [("hfi1_0", "ACTIVE", {})]

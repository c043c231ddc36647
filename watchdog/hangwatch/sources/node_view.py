"""The whole node at a glance, for commands that are no agent: every job, with the beats of whatever run directory it uses."""

from __future__ import annotations

from hangwatch.sources.beats.node_beats import NodeBeats
from hangwatch.sources.discovery.ranks import Discovery, RankFinder


def discover_node() -> tuple[Discovery, NodeBeats]:
    """Every job on the node, and a reader for its beats."""
    finder, reader = RankFinder(), NodeBeats()
    finder.find()
    reader.follow(finder.probed())
    beats, gaps = reader.read()
    found = finder.find(None, beats)
    return Discovery(found.jobs, (*found.gaps, *gaps)), reader

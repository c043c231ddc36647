"""The components of a wait-for graph that nothing leads out of. Pure."""

from __future__ import annotations

from collections.abc import Sequence


def find_sinks(edges: Sequence[tuple[Sequence[int], Sequence[int]]]) -> tuple[tuple[int, ...], ...]:
    """Return the strongly connected components that no edge leaves, each sorted, in order of their lowest rank.

    An edge leads from many ranks to many. Each becomes a node of its own between them, so the work is in proportion to
    the ends of edges. Tarjan's algorithm (1972), without recursion.
    """
    after = _nodes(edges)
    component, members = _components(after)
    left = {component[node] for node, targets in after.items() if any(component[t] != component[node] for t in targets)}
    ranks = (tuple(sorted(r for r in nodes if r >= 0)) for i, nodes in enumerate(members) if i not in left)
    return tuple(sorted(sink for sink in ranks if sink))


def has_circle(edges: Sequence[tuple[Sequence[int], Sequence[int]]]) -> bool:
    """True if any ranks wait for each other, directly or not."""
    _, members = _components(_nodes(edges))
    return any(sum(node >= 0 for node in nodes) > 1 for nodes in members)


def _nodes(edges: Sequence[tuple[Sequence[int], Sequence[int]]]) -> dict[int, list[int]]:
    """Return what each node leads to: a rank to the edges that it waits by, an edge to the ranks it awaits."""
    # Ranks are 0 and up, edges -1 and down.
    after: dict[int, list[int]] = {}
    for number, (waiters, awaited) in enumerate(edges):
        node = -1 - number
        after[node] = list(awaited)
        for rank in waiters:
            after.setdefault(rank, []).append(node)
        for rank in awaited:
            after.setdefault(rank, [])
    return after


def _components(after: dict[int, list[int]]) -> tuple[dict[int, int], list[list[int]]]:
    """Return the number of each node's component, and the nodes of each component."""
    order: dict[int, int] = {}
    low: dict[int, int] = {}
    component: dict[int, int] = {}
    stack: list[int] = []
    members: list[list[int]] = []
    for start, targets in after.items():
        if start in order:
            continue
        work = [(start, iter(targets))]
        order[start] = low[start] = len(order)
        stack.append(start)
        while work:
            node, rest = work[-1]
            for nxt in rest:
                if nxt not in order:
                    order[nxt] = low[nxt] = len(order)
                    stack.append(nxt)
                    work.append((nxt, iter(after[nxt])))
                    break
                if nxt not in component:
                    low[node] = min(low[node], order[nxt])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == order[node]:
                    found: list[int] = []
                    while True:
                        top = stack.pop()
                        component[top] = len(members)
                        found.append(top)
                        if top == node:
                            break
                    members.append(found)
    return component, members

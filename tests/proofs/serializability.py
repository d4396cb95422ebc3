"""Whether what was seen of a lake has an order: its operations done one after the other, as their times allow.

Strict serializability, checked from the outside as Elle does (Kingsbury and Alvaro, 2020): operations are nodes, and
each thing that was read says who must have come before whom: ``ww`` who wrote first, ``wr`` who wrote what somebody
read, ``rw`` who read before somebody wrote, ``rt`` who was answered before somebody asked. A cycle has no order. It is
named by its edges: G0 (only ``ww``), G1c (and ``wr``), G-single (one ``rw``), G2-item (more), each ``-realtime`` if it
takes time.

Lists tell the order of their appends. Registers don't, and of tables whose rows go and come back each row is one.
There, what was read leaves a choice: another writer was before the one that was read, or after the reader. Choices that
have only one way left are edges, too; the others are tried. What is found in the end is an order of all operations, and
it's performed: it shows everything that was read.
"""

from __future__ import annotations

import heapq
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise, product
from math import inf
from typing import Any, TypeAlias

from proofs.history import READS, Operation, Step

_MOST_CYCLES = 10
_MOST_TRIES = 5_000
_PATIENCE = 20
"""After so many ways that led nowhere, look ahead before going on."""
_INITIAL = -1
"""Who wrote what was there before everybody."""

Node: TypeAlias = int
Edge: TypeAlias = tuple[Node, Node, str]
_Seen: TypeAlias = tuple[Operation, str, Any]
"""Who looked at which key, and a value that was there or not."""


@dataclass(frozen=True)
class Anomaly:
    """Something that no serial order explains."""

    name: str
    text: str

    def __str__(self) -> str:
        return f"{self.name}: {self.text}"


@dataclass(frozen=True)
class Verdict:
    """What came of a check.

    Attributes:
        anomalies: What no serial order explains.
        order: A serial order that explains all that was read. ``None`` if there is none, or if none was found in time.
    """

    anomalies: Sequence[Anomaly]
    order: Sequence[Operation] | None = None


def check(history: Iterable[Operation]) -> Verdict:
    """Look for a serial order of the operations, or for reasons why there is none."""
    history = list(history)
    nodes = sorted((one for one in history if one.result != "failed"), key=lambda one: one.start)
    found = [*_direct(history), *_lost_updates(nodes)]
    if found:
        return Verdict(found)
    # What one reader sees of a row twice in a row says nothing new, as a rule: where it does, look again.
    closer: set[_Seen] = set()
    while True:
        verdict = _Search(nodes, closer).run()
        missed = set(unexplained(verdict.order or ()))
        if verdict.anomalies or (verdict.order is not None and not missed):
            return verdict
        if missed <= closer:
            return Verdict([Anomaly("undecided", "no order was found, and no reason why there is none")])
        closer |= missed


# What needs no graph


def _direct(history: Sequence[Operation]) -> Iterator[Anomaly]:
    """Yield reads of what nobody wrote, what failed, or is half done or there twice, and of lists out of order."""
    writers = _Writers.of(history)
    lists: dict[str, tuple[list[Any], Operation]] = {}
    for one in history:
        own: dict[str, list[Step]] = defaultdict(list)
        for step in one.steps if one.result == "ok" else ():
            if step.kind not in READS:
                own[step.key].append(step)
                continue
            values = list(step.value) if step.kind != "get" else [] if step.value is None else [step.value]
            yield from _internal(one, step, own[step.key])
            yield from writers.misread(one, step.key, values, is_own=bool(own[step.key]))
            yield from writers.half_done(one, step, values)
            if step.kind == "r":
                longest, other = lists.setdefault(step.key, (values, one))
                if any(mine != theirs for mine, theirs in zip(values, longest, strict=False)):
                    yield Anomaly("incompatible-order", f"{step.key} as read by {one} and by {other}")
                elif len(values) > len(longest):
                    lists[step.key] = values, one


@dataclass(frozen=True)
class _Writers:
    """Who wrote which value of which key, who failed to, and which values were written together."""

    written: dict[tuple[str, Any], list[Operation]]
    failed: dict[tuple[str, Any], Operation]
    together: dict[tuple[str, Any], list[tuple[Operation, list[Any]]]]

    @classmethod
    def of(cls, history: Sequence[Operation]) -> _Writers:
        writers = cls(defaultdict(list), {}, defaultdict(list))
        for one in history:
            groups: dict[str, list[Any]] = defaultdict(list)
            for kind, key, value in one.steps:
                values = value if kind in ("add", "reset") else [value] if kind in ("append", "w") else []
                for each in values:
                    if one.result == "failed":
                        writers.failed[key, each] = one
                    else:
                        writers.written[key, each].append(one)
                groups[key] += values if kind != "reset" and one.result != "failed" else ()
            for key, group in groups.items():
                for each in group if len(group) > 1 else ():
                    writers.together[key, each].append((one, group))
        return writers

    def misread(self, one: Operation, key: str, values: Sequence[Any], *, is_own: bool) -> Iterator[Anomaly]:
        for value, times in Counter(values).items():
            by = self.written.get((key, value), [])
            if times > 1:
                yield Anomaly("duplicate", f"{value!r} is {times} times in {key}, as read by {one}")
            if by == [one] and not is_own:
                yield Anomaly("future-read", f"{value!r} in {key} was read before it was written: {one}")
            elif not by:
                aborted = self.failed.get((key, value))
                name = "G1a" if aborted else "unwritten"
                yield Anomaly(name, f"{value!r} in {key} is of {aborted or 'nobody'}, as read by {one}")

    def half_done(self, one: Operation, step: Step, values: Sequence[Any]) -> Iterator[Anomaly]:
        there = set(values)
        groups = {id(found[1]): found for value in there for found in self.together.get((step.key, value), ())}
        for writer, group in groups.values():
            seen = [value for value in group if value in there] if writer is not one else []
            half = len(seen) < len(group) if step.kind != "get" else seen[:1] != group[-1:]
            if seen and half:
                yield Anomaly("G1b", f"{seen} of {group}, written together, are in {step.key}, as read by {one}")


def _internal(one: Operation, step: Step, own: Sequence[Step]) -> Iterator[Anomaly]:
    """Yield a read that doesn't show what the same operation wrote before."""
    if not own:
        return
    if step.kind == "get":
        holds = step.value == own[-1].value
    elif step.kind == "r":
        mine = [write.value for write in own]
        holds = list(step.value)[-len(mine) :] == mine
    else:
        holds = _performed(own, set()) <= set(step.value)
    if not holds:
        yield Anomaly("internal", f"{step.key} lacks what was written before it was read: {one}")


def _lost_updates(nodes: Sequence[Operation]) -> Iterator[Anomaly]:
    """Yield operations that read the same value of a key and both wrote another."""
    seen: dict[tuple[str, str], Operation] = {}
    for one in nodes:
        if one.result != "ok":
            continue
        for kind, key, value in _external_reads(one):
            if kind == "rows" or not any(step.key == key and step.kind in ("append", "w") for step in one.steps):
                continue
            other = seen.setdefault((key, repr(value)), one)
            if other is not one:
                yield Anomaly("lost-update", f"{key} was {value!r} for both {one} and {other}")


def _external_reads(one: Operation) -> Iterator[Step]:
    """Yield what an operation read of others: nothing of a key that it had written before."""
    if one.result != "ok":
        return
    wrote: set[str] = set()
    for step in one.steps:
        if step.kind not in READS:
            wrote.add(step.key)
        elif step.key not in wrote:
            yield step


# The order


@dataclass(frozen=True)
class _Way:
    """One way to explain a read: edges, and what else is to be explained then."""

    edges: Sequence[Edge]
    choices: Sequence[Sequence[_Way]] = ()


_Choice: TypeAlias = Sequence[_Way]


@dataclass
class _Search:
    nodes: Sequence[Operation]
    closer: Collection[_Seen]
    edges: dict[tuple[Node, Node], str] = field(default_factory=dict)
    choices: list[_Choice] = field(default_factory=list)

    def run(self) -> Verdict:
        for find in (self._lists, self._registers, self._bags):
            find()
        known = sorted({(*pair, label) for pair, label in self.edges.items()}, key=lambda edge: _COST[edge[2]])
        known += [
            (before, after, "rt") for before, after in _real_time(self.nodes) if (before, after) not in self.edges
        ]
        anomalies = list(self._cycles(known))
        if anomalies:
            return Verdict(anomalies)
        self.edges = {(before, after): label for before, after, label in known}
        return self._decide(_Reach.of(len(self.nodes), self.edges))

    def _edge(self, before: Node, after: Node, label: str) -> None:
        known = self.edges.get((before, after))
        if before != after and (known is None or _COST[label] < _COST[known]):
            self.edges[before, after] = label

    def _lists(self) -> None:
        reads: dict[str, list[tuple[Node, list[Any]]]] = defaultdict(list)
        for node, one in enumerate(self.nodes):
            for kind, key, value in _external_reads(one):
                reads[key] += [(node, list(value))] if kind == "r" else []
        for key, by in self._writers("append").items():
            longest = max((values for _, values in reads[key]), key=len, default=[])
            order = [by[value] for value in longest]
            unseen = [node for value, node in by.items() if value not in longest]
            for before, after in [*pairwise(order), *product(order[-1:], unseen)]:
                self._edge(before, after, "ww")
            for node, values in reads[key]:
                for before in order[: len(values)][-1:]:
                    self._edge(before, node, "wr")
                for after in order[len(values) :][:1] or unseen:
                    self._edge(node, after, "rw")

    def _registers(self) -> None:
        writers = self._writers("w")
        for node, one in enumerate(self.nodes):
            for kind, key, value in _external_reads(one):
                if kind == "get":
                    by = writers.get(key, {})
                    others = [writer for wrote, writer in by.items() if wrote != value]
                    self._translate(node, [_INITIAL] if value is None else [by[value]], others)

    def _writers(self, kind: str) -> dict[str, dict[Any, Node]]:
        """Return by key who wrote which value."""
        found: dict[str, dict[Any, Node]] = defaultdict(dict)
        for node, one in enumerate(self.nodes):
            for step in one.steps:
                if step.kind == kind:
                    found[step.key][step.value] = node
        return found

    def _bags(self) -> None:
        steps: dict[str, list[tuple[Node, Step]]] = defaultdict(list)
        readers: dict[tuple[str, int], list[tuple[Node, frozenset[Any]]]] = defaultdict(list)
        for node, one in enumerate(self.nodes):
            for step in one.steps:
                if step.kind in ("add", "remove", "reset"):
                    steps[step.key].append((node, step))
            for kind, key, value in _external_reads(one):
                if kind == "rows":
                    readers[key, one.process].append((node, frozenset(value)))
        written = {key: _bag_writers(taken) for key, taken in steps.items()}
        closer: dict[tuple[Node, str], set[Any]] = defaultdict(set)
        numbers = {one: node for node, one in enumerate(self.nodes)}
        for one, key, value in self.closer:
            closer[numbers[one], key].add(value)
        for (key, _), reads in readers.items():
            reads.sort(key=lambda read: self.nodes[read[0]].start)
            writers = written.get(key, {})
            for place, (node, values) in enumerate(reads):
                for value in closer[node, key] | _telling(reads, place, writers):
                    there, gone = writers[value]
                    same, others = (there, gone) if value in values else ([_INITIAL, *gone], there)
                    self._translate(node, same, others)

    def _translate(self, reader: Node, same: Sequence[Node], others: Sequence[Node]) -> None:
        """Note who may have written what was read, and that all who wrote something else did so before, or later."""
        others = [other for other in others if other != reader]
        ways = [self._way(reader, writer, others) for writer in same if writer != reader]
        if len(ways) > 1:
            self.choices.append(ways)
            return
        for way in ways:
            for edge in way.edges:
                self._edge(*edge)
            self.choices.extend(way.choices)

    def _way(self, reader: Node, writer: Node, others: Sequence[Node]) -> _Way:
        if writer == _INITIAL:
            return _Way([(reader, other, "rw") for other in others])
        later = [[_Way([(other, writer, "ww")]), _Way([(reader, other, "rw")])] for other in others if other != writer]
        return _Way([(writer, reader, "wr")], later)

    def _cycles(self, known: Sequence[Edge]) -> Iterator[Anomaly]:
        """Yield cycles among edges that are certain, those of the fewest kinds first."""
        left = list(known)
        for labels in (("ww",), ("ww", "wr"), ("ww", "wr", "rw"), ("ww", "wr", "rw", "rt")):
            for _ in range(_MOST_CYCLES):
                graph = _Labelled(edge for edge in left if edge[2] in labels)
                cycle = graph.cycle()
                if not cycle:
                    break
                yield self._told(cycle)
                left.remove(max(cycle, key=lambda edge: _COST[edge[2]]))

    def _told(self, cycle: Sequence[Edge]) -> Anomaly:
        labels = Counter(label for _, _, label in cycle)
        name = "G1c" if labels["wr"] else "G0"
        name = "G2-item" if labels["rw"] > 1 else "G-single" if labels["rw"] else name
        told = "; ".join(f"{self.nodes[before]} -{label}->" for before, _, label in cycle)
        return Anomaly(f"{name}-realtime" if labels["rt"] else name, told)

    def _decide(self, reach: _Reach) -> Verdict:
        """Choose among what explains each read, and go back where that leads nowhere."""
        # The rows of one file are added and seen together, so many choices are the same.
        different = {tuple(tuple(way.edges) for way in choice): choice for choice in self.choices}
        left, stuck = reach.settle(list(different.values()))
        if stuck is not None:
            return Verdict([self._hopeless(reach, stuck)])
        stack, failed = [(reach, left)], 0
        for _ in range(_MOST_TRIES):
            if not stack:
                return Verdict([Anomaly("no-serial-order", "each way to explain all that was read leads to a cycle")])
            reach, left = stack.pop()
            if failed > _PATIENCE:
                reach, left = _narrowed(reach, left)
            if not left:
                return Verdict((), [self.nodes[node] for node in reach.order()])
            ways = sorted(left[0], key=self._unlikely)
            possible = list(_possible(reach, ways, left[1:]))
            failed += not possible
            stack += reversed(possible)
        return Verdict(())

    def _unlikely(self, way: _Way) -> float:
        """Return by how much a way goes against the time at which operations were answered."""
        ends = [(self._likely_at(before), self._likely_at(after)) for before, after, _ in way.edges]
        return max((before - after for before, after in ends), default=0)

    def _likely_at(self, node: Node) -> float:
        one = self.nodes[node]
        return 1e18 if one.end == inf else one.end

    def _hopeless(self, reach: _Reach, stuck: _Choice) -> Anomaly:
        """Tell why none of the ways is possible, although all that they meet is certain: by what is easiest to see."""
        graph = _Labelled((*pair, label) for pair, label in reach.edges.items())
        cycles = []
        for way in stuck:
            for before, after, label in way.edges:
                if path := graph.path(after, before):
                    cycles.append([*path, (before, after, label)])
        # What was read is a fact, and what two writers did to each other only a way to explain it.
        return self._told(min(cycles, key=lambda cycle: (cycle[-1][2] == "ww", _cost(cycle))))


def _possible(reach: _Reach, ways: _Choice, others: Sequence[_Choice]) -> Iterator[tuple[_Reach, list[_Choice]]]:
    """Yield how things are after each of these ways that is possible, and what is left to be chosen then."""
    for way in ways:
        then = reach.copy()
        left, stuck = then.settle([[way], *others])
        if stuck is None:
            yield then, left


def _narrowed(reach: _Reach, left: list[_Choice]) -> tuple[_Reach, list[_Choice]]:
    """Make all choices of which only one way is possible together with all others; a choice of none leads nowhere."""
    place = 0
    while place < len(left):
        possible = list(_possible(reach, left[place], [*left[:place], *left[place + 1 :]]))
        if not possible:
            return reach, [[]]
        place += 1
        if len(possible) == 1:
            (reach, left), place = possible[0], 0
    return reach, left


def _telling(reads: Sequence[tuple[Node, frozenset[Any]]], place: int, values: Collection[Any]) -> set[Any]:
    """Return the values of which a read tells something else than those before and after it, of the same reader."""
    if place in (0, len(reads) - 1):
        return set(values)
    before, now, after = (reads[place + offset][1] for offset in (-1, 0, 1))
    return set((now ^ before) | (now ^ after))


def _bag_writers(steps: Sequence[tuple[Node, Step]]) -> dict[Any, tuple[list[Node], list[Node]]]:
    """Return by value the operations after which a row is there, and those after which it isn't."""
    writers: dict[Any, tuple[list[Node], list[Node]]] = {}
    for _, (kind, _, values) in steps:
        if kind != "remove":
            writers.update({value: ([], []) for value in values if value not in writers})
    for node, (kind, _, values) in steps:
        named = set(values)
        for value in writers if kind == "reset" else named & writers.keys():
            there, gone = writers[value]
            (gone if kind == "remove" or value not in named else there).append(node)
    return writers


def _real_time(nodes: Sequence[Operation]) -> Iterator[tuple[Node, Node]]:
    """Yield who was answered before somebody asked, but for what follows from others."""
    events = [(one.start, 0, node) for node, one in enumerate(nodes)]
    events += [(one.end, 1, node) for node, one in enumerate(nodes) if one.end < inf]
    latest: list[Node] = []
    for _, ended, node in sorted(events):
        if ended:
            latest = [other for other in latest if nodes[other].end >= nodes[node].start] + [node]
        else:
            yield from ((other, node) for other in latest)


_COST = {"ww": 1, "wr": 2, "rw": 1_000, "rt": 1_000_000}
"""What makes a cycle harder to see; the first ones are tried first."""


def _cost(cycle: Sequence[Edge]) -> int:
    return sum(_COST[label] for _, _, label in cycle)


class _Labelled:
    """A graph in which to look for paths that are easy to see."""

    def __init__(self, edges: Iterable[Edge]) -> None:
        self._next: dict[Node, dict[Node, str]] = defaultdict(dict)
        for before, after, label in edges:
            self._next[before][after] = label

    def cycle(self) -> list[Edge]:
        """Return a cycle, or nothing if there is none."""
        try:
            TopologicalSorter(self._next).prepare()
        except CycleError as error:
            around = set(error.args[1])
            found = [path for node in around if (path := self.path(node, node))]
            return min(found, key=_cost)
        return []

    def path(self, start: Node, end: Node) -> list[Edge]:
        """Return the easiest path, of one edge at least; nothing if there is none."""
        queue: list[tuple[int, Node]] = [(0, start)]
        best: dict[Node, int] = {}
        came: dict[Node, Edge] = {}
        while queue:
            cost, node = heapq.heappop(queue)
            if node == end and came:
                break
            for after, label in self._next.get(node, {}).items():
                total = cost + _COST[label]
                if total < best.get(after, total + 1):
                    best[after], came[after] = total, (node, after, label)
                    heapq.heappush(queue, (total, after))
        if end not in came:
            return []
        path = [came[end]]
        while path[-1][0] != start:
            path.append(came[path[-1][0]])
        return path[::-1]


class _Reach:
    """Which operations come before which, as far as is known: for each a number whose bits are those behind it."""

    def __init__(self, behind: Sequence[int], edges: Mapping[tuple[Node, Node], str]) -> None:
        self.edges = dict(edges)
        self._behind = list(behind)

    @classmethod
    def of(cls, nodes: int, edges: Mapping[tuple[Node, Node], str]) -> _Reach:
        """Return which of so many operations come before which by ``edges``."""
        behind = [1 << node for node in range(nodes)]
        followers: dict[Node, list[Node]] = {node: [] for node in range(nodes)}
        for before, after in edges:
            followers[before].append(after)
        for node in TopologicalSorter(followers).static_order():
            for after in followers[node]:
                behind[node] |= behind[after]
        return cls(behind, edges)

    def copy(self) -> _Reach:
        """Return a copy to try choices on; the edges that led here stay behind."""
        return _Reach(self._behind, {})

    def order(self) -> list[Node]:
        """Return all, each before those behind it."""
        return sorted(range(len(self._behind)), key=lambda node: -self._behind[node].bit_count())

    def allows(self, way: _Way) -> bool:
        return not any(self._behind[after] >> before & 1 for before, after, _ in way.edges)

    def settle(self, choices: Sequence[_Choice]) -> tuple[list[_Choice], _Choice | None]:
        """Make all choices that have one way left; return those that have more, and one that has none."""
        todo, changed = list(choices), True
        while changed:
            changed = False
            left: list[_Choice] = []
            for choice in todo:
                if any(not way.choices and self._has(way) for way in choice):
                    continue
                ways = [way for way in choice if self.allows(way)]
                if not ways or (len(ways) == 1 and not self._take(ways[0])):
                    return left, choice
                if len(ways) > 1:
                    left.append(ways)
                else:
                    left.extend(ways[0].choices)
                    changed = True
            todo = left
        return todo, None

    def _has(self, way: _Way) -> bool:
        return all(self._behind[before] >> after & 1 for before, after, _ in way.edges)

    def _take(self, way: _Way) -> bool:
        for before, after, label in way.edges:
            if self._behind[after] >> before & 1:
                return False
            if not self._behind[before] >> after & 1:
                gained, bit = self._behind[after], 1 << before
                self._behind = [behind | gained if behind & bit else behind for behind in self._behind]
            self.edges.setdefault((before, after), label)
        return True


# The order, performed


def unexplained(order: Sequence[Operation]) -> Iterator[_Seen]:
    """Perform the operations in this order; yield what reads saw otherwise."""
    state: dict[str, Any] = {}
    for one in order:
        for kind, key, value in one.steps:
            match kind:
                case "append":
                    state[key] = (*state.get(key, ()), value)
                case "w":
                    state[key] = value
                case "add" | "remove" | "reset":
                    state[key] = _performed([Step(kind, key, value)], state.get(key, set()))
                case "rows" if one.result == "ok":
                    yield from ((one, key, wrong) for wrong in set(value) ^ state.get(key, set()))
                case "r" if one.result == "ok" and tuple(value) != state.get(key, ()):
                    yield one, key, None
                case "get" if one.result == "ok" and value != state.get(key):
                    yield one, key, None


def _performed(steps: Sequence[Step], rows: set[Any]) -> set[Any]:
    for kind, _, values in steps:
        rows = rows | set(values) if kind == "add" else rows - set(values) if kind == "remove" else set(values)
    return rows

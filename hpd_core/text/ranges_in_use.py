"""Allocator of ranges in an array whose entries are added and removed."""

from __future__ import annotations


class RangesInUse:
    """Allocator of ranges, first fit; ranges that are given back are reused."""

    def __init__(self) -> None:
        self._end = 0
        self._free: list[tuple[int, int]] = []  # (first, stop), in order, none beside another

    def take(self, count: int) -> int:
        """Allocate `count` consecutive places. Return the first."""
        for number, (first, stop) in enumerate(self._free):
            if stop - first >= count:
                self._free[number : number + 1] = [(first + count, stop)] if stop - first > count else []
                return first
        self._end += count
        return self._end - count

    def give_back(self, first: int, count: int) -> None:
        """Free a range, or a part of one, that was taken."""
        joined: list[tuple[int, int]] = []
        for each in sorted([*self._free, (first, first + count)]):
            if joined and joined[-1][1] == each[0]:
                joined[-1] = (joined[-1][0], each[1])
            else:
                joined.append(each)
        self._free = joined

"""Leases of table entries, which stay in the table as long as they are in use.

A table is an array: `RangesInUse` allocates ranges of it, and reuses those whose entries were removed.
"""

from __future__ import annotations

import math
from collections import OrderedDict, deque
from collections.abc import Callable
from threading import Lock
from typing import Generic, TypeVar
from weakref import ReferenceType, finalize, ref

Kept = TypeVar("Kept")


class Lease(Generic[Kept]):
    """Lease that keeps an entry in a table as long as the lease object is referenced.

    Attributes:
        kept: name of the entry in the table.
    """

    def __init__(self, kept: Kept) -> None:
        self.kept = kept


class Leases(Generic[Kept]):
    """Registry of the leases of a table's entries. Leases may end in any thread, without a lock.

    Attributes:
        lock: lock of the table. `lend` and `num_lent_bytes` take it; callers of the other methods must hold it.
    """

    def __init__(self, remove: Callable[[Kept], None]) -> None:
        """Take `remove`, which removes an unused entry from the table."""
        self.lock = Lock()
        self._remove = remove
        # Entries by key are usually asked for again, so they stay while there is room. Most recently used last.
        self._by_key: OrderedDict[bytes, tuple[Kept, ReferenceType[Lease[Kept]]]] = OrderedDict()
        self._ended: deque[tuple[Kept, int]] = deque()
        self._num_lent_bytes = 0

    def __len__(self) -> int:
        """Return the number of entries with a key."""
        return len(self._by_key)

    def find(self, key: bytes) -> Lease[Kept] | None:
        """Return a lease of the entry with this key; None if there is none."""
        if key not in self._by_key:
            return None
        kept, there = self._by_key[key]
        lease = there() or Lease(kept)
        self._by_key[key] = kept, ref(lease)
        self._by_key.move_to_end(key)
        return lease

    def put(self, key: bytes, kept: Kept) -> Lease[Kept]:
        """Store an entry under a key. Return a lease of it."""
        lease = Lease(kept)
        self._by_key[key] = kept, ref(lease)
        return lease

    def lend(self, add: Callable[[], tuple[Kept, int]]) -> Lease[Kept]:
        """Add an entry without a key, which is removed after the end of its lease. Return the lease.

        Args:
            add: puts the entry into the table, and returns its name there and its size in bytes.
        """
        with self.lock:
            self._collect()
            kept, num_bytes = add()
            self._num_lent_bytes += num_bytes
        lease = Lease(kept)
        # Nothing but this: it runs wherever the last reference goes, in the middle of whatever runs there.
        finalize(lease, self._ended.append, (kept, num_bytes)).atexit = False
        return lease

    @property
    def num_lent_bytes(self) -> int:
        """Bytes of the lent entries still in use."""
        with self.lock:
            self._collect()
            return self._num_lent_bytes

    def _collect(self) -> None:
        """Remove lent entries that are not in use any more."""
        while self._ended:
            kept, num_bytes = self._ended.popleft()
            self._remove(kept)
            self._num_lent_bytes -= num_bytes

    def make_room(self, has_room: Callable[[], bool]) -> None:
        """Evict unused entries with keys, least recently used first, until `has_room()`."""
        self._collect()
        for key, (kept, there) in list(self._by_key.items()):
            if has_room():
                return
            if there() is None:
                del self._by_key[key]
                self._remove(kept)


class RangesInUse:
    """Allocator of ranges, first fit; ranges that are given back are reused."""

    def __init__(self, most: float = math.inf) -> None:
        """Have `most` places."""
        self._end, self._most = 0, most
        self._free: list[tuple[int, int]] = []  # (first, stop), in order, none beside another

    def take(self, count: int) -> int:
        """Allocate `count` consecutive places. Return the first. Raise `MemoryError` if there is no room."""
        for number, (first, stop) in enumerate(self._free):
            if stop - first >= count:
                self._free[number : number + 1] = [(first + count, stop)] if stop - first > count else []
                return first
        if self._end + count > self._most:
            raise MemoryError(f"no room for {count:,} places")
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
        if joined[-1][1] == self._end:
            self._end = joined.pop()[0]
        self._free = joined

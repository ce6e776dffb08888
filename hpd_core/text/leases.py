"""What stands in a table for as long as somebody has it."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable
from threading import Lock
from typing import Generic, TypeVar
from weakref import ReferenceType, finalize, ref

Kept = TypeVar("Kept")


class Lease(Generic[Kept]):
    """Keeps something in a table for as long as anybody has the lease.

    Attributes:
        kept: what names it there.
    """

    def __init__(self, kept: Kept) -> None:
        self.kept = kept


class Leases(Generic[Kept]):
    """Who has what of a table. Leases may end in any thread, without a lock.

    Attributes:
        lock: of the table. `lend` and `num_lent_bytes` take it; whoever calls the rest has it.
    """

    def __init__(self, remove: Callable[[Kept], None]) -> None:
        """`remove`: takes what nobody has out of the table."""
        self.lock = Lock()
        self._remove = remove
        # By a key: asked for again as a rule, so that it stays while there is room. The last asked for is the last one.
        self._by_key: OrderedDict[bytes, tuple[Kept, ReferenceType[Lease[Kept]]]] = OrderedDict()
        self._ended: deque[tuple[Kept, int]] = deque()
        self._num_lent_bytes = 0

    def __len__(self) -> int:
        """How many are kept by a key."""
        return len(self._by_key)

    def find(self, key: bytes) -> Lease[Kept] | None:
        """A lease of what is kept by this key."""
        if key not in self._by_key:
            return None
        kept, there = self._by_key[key]
        lease = there() or Lease(kept)
        self._by_key[key] = kept, ref(lease)
        self._by_key.move_to_end(key)
        return lease

    def put(self, key: bytes, kept: Kept) -> Lease[Kept]:
        """Keeps something by a key."""
        lease = Lease(kept)
        self._by_key[key] = kept, ref(lease)
        return lease

    def lend(self, add: Callable[[], tuple[Kept, int]]) -> Lease[Kept]:
        """Keeps something that nobody will ask for again: it is removed behind the end of its lease.

        Args:
            add: puts it into the table, and says what names it there and how many bytes it takes.
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
        """Of what was lent and somebody has."""
        with self.lock:
            self._collect()
            return self._num_lent_bytes

    def _collect(self) -> None:
        """Removes what was lent and nobody has any more."""
        while self._ended:
            kept, num_bytes = self._ended.popleft()
            self._remove(kept)
            self._num_lent_bytes -= num_bytes

    def make_room(self, has_room: Callable[[], bool]) -> None:
        """Removes what is kept by keys and nobody has, what was asked for longest ago first, until there is room."""
        self._collect()
        for key, (kept, there) in list(self._by_key.items()):
            if has_room():
                return
            if there() is None:
                del self._by_key[key]
                self._remove(kept)

"""Threads and OpenMP."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")


def in_passing_thread(work: Callable[[], T]) -> T:
    """What `work` returns or raises, computed in a thread that ends with it.

    OpenMP keeps a team of threads for every thread that ever computed, until that one ends. A model that is loaded in
    one thread and used in another leaves two teams; with more threads than cores, GNU OpenMP no longer spins between
    two parallel regions but sleeps, thousands of times in a step. On two cores such an engine is slower than with one.
    """
    with ThreadPoolExecutor(1, thread_name_prefix="hpd-load") as executor:
        return executor.submit(work).result()

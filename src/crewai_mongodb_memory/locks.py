"""Locks that a fork does not leave locked for ever."""

from __future__ import annotations

import os
import threading
import weakref
from typing import Self


class ProcessLock:
    """A lock between the threads of one process; after a fork the child's is free.

    An ordinary lock that another thread holds at the moment of a fork stays locked in the child,
    where that thread does not exist.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        _locks.add(self)

    def __enter__(self) -> Self:
        self._lock.acquire()
        return self

    def __exit__(self, *_: object) -> None:
        if self._lock.locked():  # not so in a child that was forked inside the block
            self._lock.release()

    def renew(self) -> None:
        """Be free, whoever held it."""
        self._lock = threading.Lock()


_locks: weakref.WeakSet[ProcessLock] = weakref.WeakSet()


def _after_fork() -> None:
    for lock in list(_locks):
        lock.renew()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)

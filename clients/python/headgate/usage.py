"""How much of its processors and of its memory this process uses."""

from __future__ import annotations

import os
import time
from typing import Dict, List, Optional

_GROUP = "/sys/fs/cgroup/"  # of the container, by cgroup v2


class Usage:
    """Measures this process, from one sample to the next."""

    def __init__(self) -> None:
        self._spent, self._at = time.process_time(), time.monotonic()

    def sample(self) -> Dict[str, float]:
        """Return cpu and memory in percent, of the limits of the container where it has any, else of the machine. What is not known is left out."""
        spent, at = time.process_time(), time.monotonic()
        cpu = (spent - self._spent) / max(at - self._at, 1e-3) / _processors()
        self._spent, self._at = spent, at
        used = {"cpu": round(min(100 * cpu, 100.0), 2)}
        memory = _memory()
        if memory is not None:
            used["memory"] = round(min(100 * memory, 100.0), 2)
        return used


def _words(path: str) -> List[str]:
    try:
        with open(path, encoding="ascii") as file:
            return file.read().split()
    except (OSError, ValueError):
        return []


def _processors() -> float:
    own = float(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)
    quota = _words(_GROUP + "cpu.max")  # microseconds in a period, and the period
    if len(quota) == 2 and quota[0].isdigit():
        own = min(own, int(quota[0]) / int(quota[1]))
    return max(own, 0.01)


def _memory() -> Optional[float]:
    most, now = _words(_GROUP + "memory.max"), _words(_GROUP + "memory.current")
    if most and now and most[0].isdigit():
        return int(now[0]) / max(int(most[0]), 1)
    pages = _words("/proc/self/statm")
    try:
        return int(pages[1]) / os.sysconf("SC_PHYS_PAGES")
    except (IndexError, ValueError, OSError, AttributeError):
        return None

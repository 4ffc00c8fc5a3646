"""What a folder holds, in a form that two sides can compare."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass

from inferlift.transfer.on_host import Entry


@dataclass(frozen=True)
class Manifest:
    entries: tuple[Entry, ...]

    @classmethod
    def of(cls, entries: Sequence[Sequence[object]]) -> Manifest:
        rows = [(str(p), str(k), int(str(m)), int(str(s)), str(c)) for p, k, m, s, c in entries]
        return cls(tuple(sorted(rows)))

    def sealed(self) -> Manifest:
        """As it looks at a destination: what others could write at the source, only root can write there."""
        return Manifest(tuple((p, k, m & ~0o002, s, c) for p, k, m, s, c in self.entries))

    @property
    def digest(self) -> str:
        """sha256 over the sorted lines of path, kind, mode, size and content digest."""
        return hashlib.sha256("\n".join(json.dumps(e) for e in self.entries).encode()).hexdigest()

    @property
    def files(self) -> int:
        return sum(kind == "file" for _, kind, _, _, _ in self.entries)

    @property
    def bytes(self) -> int:
        return sum(size for _, _, _, size, _ in self.entries)

    @property
    def special(self) -> list[str]:
        """Sockets, devices and pipes: nothing that a copy could hold."""
        return [path for path, kind, _, _, _ in self.entries if kind == "special"]

    def difference(self, other: Manifest) -> list[str]:
        """`path (what differs)` for each path that is not the same in `other`."""
        mine = {e[0]: e for e in self.entries}
        theirs = {e[0]: e for e in other.entries}
        found = []
        for path in sorted(mine.keys() | theirs.keys()):
            a, b = mine.get(path), theirs.get(path)
            if a is None or b is None:
                found.append(f"{path!a} ({'left over' if a is None else 'missing'})")
            elif a != b:
                names = ("kind", "mode", "size", "content")
                found.append(
                    f"{path!a} ({', '.join(n for n, x, y in zip(names, a[1:], b[1:], strict=True) if x != y)})"
                )
        return found

"""A digest of a folder's content, for keys."""

from __future__ import annotations

import hashlib
from pathlib import Path


def tree_digest(folder: Path, pattern: str = "*", *, skip: tuple[str, ...] = ("__pycache__", ".ansible")) -> str:
    """sha256 over the sorted (relative path, mode, content) of the files; folders and times do not count."""
    total = hashlib.sha256()
    for path in sorted(folder.rglob(pattern)):
        if path.is_file() and not any(part in skip for part in path.parts):
            total.update(f"{path.relative_to(folder)}\0{path.stat().st_mode & 0o111:o}\0".encode())
            total.update(hashlib.sha256(path.read_bytes()).digest())
    return total.hexdigest()

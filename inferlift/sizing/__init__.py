"""The sizing: profile, evidence and offers -> Sizing. Pure: the same input gives the same plan."""

from inferlift.sizing.capacity import deadline_s, needed_replicas
from inferlift.sizing.plan import evidence_inputs, size

__all__ = ["deadline_s", "evidence_inputs", "needed_replicas", "size"]

"""The DNS engine: moves the answers of one name from an old address to a new one, a step at a time, and back."""

from inferlift.dns.record import settle
from inferlift.dns.verification import verify

__all__ = ["settle", "verify"]

"""What the fleet's Prometheus has stored, and what it says about the moved workload."""

from inferlift.observe.prometheus import Prometheus
from inferlift.observe.review import Plan
from inferlift.observe.sites import joined, unasked
from inferlift.observe.watch import judge, up

__all__ = ["Plan", "Prometheus", "joined", "judge", "unasked", "up"]

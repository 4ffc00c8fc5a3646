"""Offers of a target: what can be had, what it costs, from where that is known. A price that is not known is None."""

from inferlift.prices.offers import REGION, offers

__all__ = ["REGION", "offers"]

"""Offers of a target: what can be had, what it costs, from where that is known. A price that is not known is None."""

from inferlift.prices.age import MAX_AGE_DAYS, age_days, age_note, oldest
from inferlift.prices.elsewhere import Api, Rental, ServerPrice, apis, rentals, servers
from inferlift.prices.offers import REGION, Region, offers, regions, regions_offering
from inferlift.prices.refresh import Refreshed, refresh
from inferlift.prices.show import PriceTable, table
from inferlift.prices.tables import Extra, extras

__all__ = [
    "MAX_AGE_DAYS",
    "REGION",
    "Api",
    "Extra",
    "PriceTable",
    "Refreshed",
    "Region",
    "Rental",
    "ServerPrice",
    "age_days",
    "age_note",
    "apis",
    "extras",
    "offers",
    "oldest",
    "refresh",
    "regions",
    "regions_offering",
    "rentals",
    "servers",
    "table",
]

"""The price tables: known rows, unknown prices, sources."""

from __future__ import annotations

import pytest

from inferlift.errors import DeclarationError
from inferlift.prices import offers


def test_known_rows() -> None:
    table = {offer.name: offer for offer in offers("aws", "us-east-1")}
    small, large = table["p5.4xlarge"], table["p5.48xlarge"]
    assert (small.gpu, small.gpu_count, small.usd_per_hour) == ("H100", 1, 6.88)
    assert (large.gpu_count, large.usd_per_hour) == (8, 55.04)
    assert table["p4d.24xlarge"].usd_per_hour == pytest.approx(21.957642)  # not the old 32.77


def test_a_price_that_is_not_known_is_none() -> None:
    assert {o.name: o.usd_per_hour for o in offers("aws", "us-east-1")}["p5e.48xlarge"] is None
    assert offers("static")[0].usd_per_hour is None
    assert [o.name for target in ("lab", "aws", "static") for o in offers(target) if o.usd_per_hour == 0] == []


def test_region() -> None:
    table = {offer.name: offer for offer in offers("aws")}
    assert table["g5.xlarge"].usd_per_hour == 1.258
    assert table["p5.48xlarge"].offered is False
    assert table["g5.xlarge"].offered is True
    with pytest.raises(DeclarationError, match="region"):
        offers("aws", "mars-north-1")


def test_the_lab_is_an_assumption_and_says_so() -> None:
    (host,) = offers("lab")
    assert host.source.startswith("assumption")


def test_every_price_has_a_source_and_a_date() -> None:
    every = [*offers("lab"), *offers("static"), *offers("aws"), *offers("aws", "us-east-1")]
    assert [offer.name for offer in every if not offer.source] == []
    priced = [offer for offer in every if offer.usd_per_hour is not None]
    assert [offer.name for offer in priced if not offer.date or offer.source == "no price in the table"] == []


def test_unknown_target() -> None:
    with pytest.raises(DeclarationError, match="prices"):
        offers("azure")  # type: ignore[arg-type]

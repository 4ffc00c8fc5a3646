"""Prices outside of AWS: what is known, in order, with sources."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from inferlift.prices import apis, rentals, servers

GPUS = Path(__file__).parents[3] / "inferlift" / "sizing" / "gpus.csv"


def test_rentals_are_cheapest_first_and_for_one_gpu() -> None:
    found = rentals("H100 SXM")
    assert [rental.usd_per_gpu_hour for rental in found] == sorted(rental.usd_per_gpu_hour for rental in found)
    assert {rental.gpu for rental in found} == {"H100 SXM"}
    nebius = next(rental for rental in found if rental.provider == "Nebius" and rental.gpus == 8)
    assert (nebius.usd_per_gpu_hour, nebius.eu) == (pytest.approx(2.95), True)
    assert rentals("no such GPU") == ()


@pytest.mark.parametrize("name", ["Llama-3.3-70B", "Llama-3.3-70B-Instruct", "llama-3-3-70b"])
def test_a_managed_model_is_found_by_its_usual_spellings(name: str) -> None:
    bedrock = next(api for api in apis(name) if api.provider == "AWS Bedrock")
    assert (bedrock.usd_per_million_in, bedrock.usd_per_million_out) == (0.72, 0.72)
    assert "Llama-3.1-70B" not in {api.model for api in apis(name)}


def test_an_embedding_model_writes_nothing() -> None:
    (api,) = apis("Qwen3-Embedding-8B")
    assert (api.usd_per_million_in, api.usd_per_million_out) == (0.12, None)


def test_a_server_without_a_stated_price_has_none() -> None:
    assert {server.usd for server in servers("L40S")} == {None}
    dear = max(servers("H100 SXM"), key=lambda server: server.usd or 0)
    assert (dear.usd, dear.kw, dear.gpus) == (317000, 10.2, 8)
    assert servers("A10G")[0].usd_source == "not sold"


def test_every_figure_has_a_source_and_a_quality() -> None:
    assert [row for row in (*rentals(), *apis()) if not row.source or row.quality not in ("first", "second")] == []
    assert [row for row in servers() if not row.usd_source or not row.kw_source] == []


def test_servers_are_of_gpus_that_the_sizing_knows() -> None:
    with GPUS.open(encoding="utf-8", newline="") as file:
        known = {row["gpu"] for row in csv.DictReader(file)}
    assert [server.gpu for server in servers() if server.gpu not in known] == []

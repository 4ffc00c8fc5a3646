"""What the AWS Price List API says of one instance type in one region.

Format: https://docs.aws.amazon.com/awsaccountbilling/latest/aboutv2/using-price-list-query-api.html
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

ENDPOINT = "us-east-1"  # the API answers for all regions, from a few
SOURCE = "AWS Price List API (AmazonEC2: Linux, shared tenancy, used, nothing preinstalled, no licence)"
SOURCE_DEDICATED = SOURCE.replace("shared tenancy", "dedicated tenancy")
_ASKED = {
    "operatingSystem": "Linux",
    "tenancy": "Shared",
    "capacitystatus": "Used",
    "preInstalledSw": "NA",
    "licenseModel": "No License required",
}
_TERM = {"1yr": "reserved-1y", "3yr": "reserved-3y"}


def hourly(client: Any, instance_type: str, region: str) -> dict[str, list[float]]:
    """USD an hour by kind (on-demand, reserved-1y, reserved-3y: standard, nothing ahead), every figure that is listed.

    `dedicated` is the hourly rate of a dedicated instance, without the region's fee.

    No figure: not listed. Several: the list is ambiguous. A figure may be 0: judging is the caller's. Raises what the
    client raises.
    """
    found: dict[str, list[float]] = {"on-demand": [], "dedicated": [], "reserved-1y": [], "reserved-3y": []}
    for product in _products(client, instance_type, region):
        terms = product.get("terms", {})
        for term in terms.get("OnDemand", {}).values():
            found["on-demand"] += _rates(term)
        for term in terms.get("Reserved", {}).values():
            attributes = term.get("termAttributes", {})
            kind = _TERM.get(attributes.get("LeaseContractLength", ""))
            if kind and (attributes.get("OfferingClass"), attributes.get("PurchaseOption")) == (
                "standard",
                "No Upfront",
            ):
                found[kind] += _rates(term)
    for product in _products(client, instance_type, region, tenancy="Dedicated"):
        for term in product.get("terms", {}).get("OnDemand", {}).values():
            found["dedicated"] += _rates(term)
    return found


def _products(client: Any, instance_type: str, region: str, *, tenancy: str = "Shared") -> Iterator[Mapping[str, Any]]:
    wanted = {**_ASKED, "tenancy": tenancy, "instanceType": instance_type, "regionCode": region}
    filters = [{"Type": "TERM_MATCH", "Field": field, "Value": value} for field, value in wanted.items()]
    token: dict[str, str] = {}
    while True:
        answer = client.get_products(ServiceCode="AmazonEC2", Filters=filters, **token)
        for text in answer["PriceList"]:
            product = json.loads(text) if isinstance(text, str) else text
            attributes = product["product"]["attributes"]
            # the answer is held against the question: one that says otherwise is another product's price
            on_demand = attributes.get("marketoption", "OnDemand") == "OnDemand"
            if on_demand and all(attributes.get(field, value) == value for field, value in wanted.items()):
                yield product
        if not answer.get("NextToken"):
            return
        token = {"NextToken": answer["NextToken"]}


def _rates(term: Mapping[str, Any]) -> list[float]:
    dimensions = term.get("priceDimensions", {}).values()
    return [
        float(d["pricePerUnit"]["USD"]) for d in dimensions if d.get("unit") == "Hrs" and "USD" in d["pricePerUnit"]
    ]

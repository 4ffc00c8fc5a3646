"""The plan with all that prices know: offers of every region allowed, services, what comes on top of hosts, TCO."""

from __future__ import annotations

from typing import TYPE_CHECKING

from inferlift.artifacts import Costs, Evidence, Figure, Offer, Sizing, Tco
from inferlift.errors import DeclarationError
from inferlift.profile import Profile
from inferlift.sizing.cost import Priced, Step
from inferlift.sizing.verdict import Service

if TYPE_CHECKING:
    from inferlift.prices import Api

MONTH_S = 730 * 3600
ANSWER_BYTES = 2000.0  # assumption: headers and the JSON around an answer
HOST_DISK_GB = 60.0  # assumption: system, driver, images and logs; the weights come on top


def planned(profile: Profile, evidence: Evidence | None, measured_rate: Figure | None = None) -> Sizing:
    """The whole plan. The same input and the same price tables give the same plan."""
    from inferlift.sizing import size
    from inferlift.sizing.timeline import Circumstances, timeline

    offers = offers_of(profile)
    plan = size(profile, evidence, offers, measured_rate, services=services_of(profile))
    offer = next(
        one for one in offers
        if one.region == plan.region and (one.name == plan.choice or profile.target == "lab")
    )  # fmt: skip
    known = Circumstances(
        weights_bytes=plan.memory.weights_bytes,
        quota_suffices={"pass": True, "fail": False}.get(
            next((check.verdict for check in plan.compat if check.name == "quota"), "pass")
        ),
        fleet_rps=plan.rate_per_replica.value,
    )
    costs = costs_of(profile, plan, offer)
    plan = plan.model_copy(
        update={
            "costs": costs,
            "tco": tco_of(profile, plan, offer, costs),
            "timeline": timeline(profile, offer, known),
        }
    )
    return _judged_on_all_costs(profile, plan, costs)


def regions_of(profile: Profile) -> tuple[str, ...]:
    """Regions of AWS whose offers are compared: those named, else those that residency allows, else Frankfurt."""
    from inferlift.prices import REGION, regions

    operations = profile.operations
    if operations.regions:
        return operations.regions
    if not operations.residency:
        return (REGION,)
    known = [one.name for one in regions() if one.offerings_known]
    if not (found := tuple(name for name in known if operations.resides(name))):
        raise DeclarationError(
            f"no known region lies within {', '.join(operations.residency)}",
            why=f"known: {', '.join(known)}",
            next_command="correct operations.residency (beginnings of region names, or eu)",
        )
    return found


def offers_of(profile: Profile) -> list[Offer]:
    """What can be had: of the cloud's regions, the lab's host, or the hosts that the profile says exist."""
    from inferlift.prices import offers

    if profile.target == "aws":
        return [offer for region in regions_of(profile) for offer in offers("aws", region)]
    if profile.target == "static" and profile.static is not None:
        return [
            Offer(
                name=host.name, gpu=host.gpu, gpu_count=host.gpus, vcpu=host.cores * 2,
                ram_gib=host.ram_gb * 1e9 / 2**30, network_gbps=host.network_gbps, nvme_mb_s=host.disk_mb_per_s,
                count=host.count, offered=True,
                usd_per_hour=None if host.cost_per_hour is None else host.cost_per_hour * _usd_rate(profile),
                source=f"static.hosts: {host.name}, as declared", date="",
            )
            for host in profile.static.hosts
            if host.role == "model"
        ]  # fmt: skip
    return list(offers(profile.target))


def services_of(profile: Profile) -> list[Service]:
    """The same model as a managed service, where one is known and may be used."""
    asked, found = profile.requests, []
    for api in _apis(profile):
        usd = asked.input_tokens_p50 * api.usd_per_million_in + asked.output_tokens * (api.usd_per_million_out or 0.0)
        per_1000 = Figure(
            value=usd / 1e6 * 1000 / _usd_rate(profile),
            unit=f"{profile.budget.currency}/1000",
            basis="declared",
            source=f"{asked.input_tokens_p50} tokens in, {asked.output_tokens} out; {api.source}",
            at=api.date,
        )
        found.append(Service(f"{api.provider} {api.product}", per_1000))
    return found


def costs_of(profile: Profile, plan: Sizing, offer: Offer) -> Costs:
    """Everything that is billed by the month, part by part."""
    from inferlift.prices import extras
    from inferlift.sizing.choice import alone
    from inferlift.sizing.cost import CostInputs, costs

    budget, hosts = profile.budget, plan.replicas + plan.spare
    mean = plan.mean_rps
    rate = plan.rate_per_replica
    capacity = rate.model_copy(update={"value": None if rate.value is None else rate.value * plan.replicas})
    price = plan.cost_per_hour.value
    host = Priced(
        None if price is None else price * _usd_rate(profile) / hosts, *_paid(profile, plan, offer),
        plan.cost_per_hour.basis,
    )  # fmt: skip
    base = CostInputs(
        currency=budget.currency, usd_rate=_usd_rate(profile),
        usd_rate_note=f"{budget.usd_rate_source}, {budget.usd_rate_date}", hosts=hosts, host_hour=host,
        capacity_rps=capacity, peak_rps=plan.peak_rps, mean_rps=mean, output_tokens=profile.requests.output_tokens,
        disk_gb=0, egress_gb=0,
    )  # fmt: skip
    if profile.target != "aws" or offer.region is None:
        return costs(base)
    told = extras(offer.region)

    def on_top(item: str) -> Priced:
        one = told[item][0]
        return Priced(one.usd, one.source, one.date, "unknown" if one.usd is None else "declared")

    return costs(
        CostInputs(
            **{
                **base.__dict__,
                "disk_gb": _disk_gb(profile, plan),
                "disk_gb_month": on_top("disk gp3"),
                "egress_gb": _egress_gb(profile, mean or plan.peak_rps),
                "egress": tuple(
                    Step(one.usd, one.from_gb, one.up_to_gb, one.source, one.date) for one in told["egress"]
                ),
                "addresses": 1,
                "address_hour": on_top("address"),
                "balancers": 1,
                "balancer_hour": on_top("load balancer"),
                "region_hour": on_top("dedicated fee") if alone(profile) else None,
            }
        )
    )


def _paid(profile: Profile, plan: Sizing, offer: Offer) -> tuple[str, str]:
    """Source and date of the price that the hosts are counted at."""
    from inferlift.sizing.choice import alone

    if alone(profile):
        return offer.dedicated_source or "no price as a dedicated instance is known", offer.dedicated_date
    if plan.sold_as == "spot":
        return offer.spot_source, offer.spot_date
    return offer.source, offer.date


def tco_of(profile: Profile, plan: Sizing, offer: Offer, costs: Costs) -> Tco:
    """Buy, lease, rent, cloud or a managed service over years, on the profile's and the tables' assumptions."""
    from inferlift.prices import extras, rentals, servers
    from inferlift.sizing import hardware
    from inferlift.sizing.choice import alone
    from inferlift.sizing.tco import TcoInputs, assumptions, tco

    told, usd_rate = profile.tco, _usd_rate(profile)
    gpu = plan.serving.gpu if plan.serving is not None else None
    card = hardware.named(gpu) if gpu is not None else None
    server = next((one for one in servers(gpu or "-") if one.gpus == offer.gpu_count), None)
    # with a residency, hosts whose place is not known are none
    rental = next((one for one in rentals(gpu or "-") if one.eu is True or not profile.operations.residency), None)
    dedicated = profile.operations.tenancy == "dedicated"
    if dedicated:
        rental = None  # whether a rented host is shared with other customers is not told
    fee = extras(offer.region)["dedicated fee"][0] if alone(profile) and offer.region else None
    api = next(iter(_apis(profile)), None)
    mean = plan.mean_rps or plan.peak_rps
    month = None if mean.value is None else mean.value * MONTH_S
    writes = profile.requests.output_tokens > 0
    nothing = Priced(None, "no price known")
    own = Priced(None, "the hosts are there: their price by the hour is no cloud's")
    egress = next((line for line in costs.lines if line.name == "egress"), None)
    gb = _egress_gb(profile, mean)
    disk = next((line for line in costs.lines if line.name == "disks"), None)
    inputs = TcoInputs(
        currency=profile.budget.currency, usd_rate=usd_rate, hosts=plan.replicas + plan.spare,
        gpus_per_host=offer.gpu_count, gpu=gpu or "", gpu_tdp_w=card.tdp_w if card is not None else None,
        host_kw=told.server_kw or (server.kw if server is not None else None), cooling=told.cooling,
        server=_declared(told.server_price, usd_rate, "tco.server_price")
        or (Priced(server.usd, server.usd_source, server.date) if server is not None else nothing),
        rented_gpu_hour=_declared(told.rented_gpu_hour, usd_rate, "tco.rented_gpu_hour")
        or (Priced(rental.usd_per_gpu_hour, rental.source, rental.date) if rental is not None
            else Priced(None, "whether a rented host is shared with others is not told") if dedicated else nothing),
        cloud_host_hour=own if profile.target == "static"
        else Priced(offer.usd_dedicated_per_hour, offer.dedicated_source or "no price as a dedicated instance is known",
                    offer.dedicated_date) if alone(profile)
        else Priced(offer.usd_per_hour, offer.source, offer.date),
        cloud_region_hour=Priced(fee.usd, fee.source, fee.date) if fee is not None else None,
        reserved_host_hour=own if profile.target == "static" else nothing if alone(profile)
        else Priced(offer.usd_reserved_per_hour, offer.source, offer.date),
        api_in=Priced(api.usd_per_million_in, api.source, api.date) if api else nothing,
        api_out=Priced(api.usd_per_million_out, api.source, api.date) if api else nothing,
        # a service priced by the token is no answer to a task that writes none
        input_tokens_month=None if month is None or not writes else month * profile.requests.input_tokens_p50,
        output_tokens_month=None if month is None or not writes else month * profile.requests.output_tokens,
        busy_share=min(1.0, costs.utilisation_mean.value or 1.0),
        storage_gb=_disk_gb(profile, plan) * (plan.replicas + plan.spare),
        cloud_gb_month=Priced(
            None if disk is None or disk.monthly.value is None
            else disk.monthly.value * usd_rate / (_disk_gb(profile, plan) * (plan.replicas + plan.spare)),
            "the plan's own disks",
        ),
        egress_gb_month=gb or 0.0,
        egress_gb=Priced(
            None if egress is None or egress.monthly.value is None or not gb else egress.monthly.value * usd_rate / gb,
            "the plan's own egress",
        ),
        bill_monthly=declared_bill(profile), ups_kva=told.ups_kva, circuits=told.circuits,
    )  # fmt: skip
    return tco(inputs, assumptions(profile.budget.currency, usd_rate, told.assumed()))


def price_dates(plan: Sizing) -> list[str]:
    """Dates of the prices that the plan stands on."""
    told = [plan.cost_per_hour.at, *(line.monthly.at for line in (plan.costs.lines if plan.costs else ()))]
    return [date for date in told if date]


def _judged_on_all_costs(profile: Profile, plan: Sizing, costs: Costs) -> Sizing:
    """The target of cost holds for the whole bill, not for the hosts alone."""
    budget, month = profile.budget.monthly, costs.monthly.value
    if budget is not None and (month is None or month > budget) and "budget.monthly" not in plan.why:
        said = "the whole bill is not known" if month is None else f"{month:,.0f} {plan.currency} a month in all"
        why = f"{plan.why}; {said}, budget.monthly is {budget:g}"
        plan = plan.model_copy(update={"why": why, "verdict": "conditional" if plan.verdict == "go" else plan.verdict})
    limit, whole = profile.targets.max_cost_per_1000, costs.per_1000.value
    if limit is None or whole is None or whole <= limit or (plan.cost_per_1000.value or 0.0) > limit:
        return plan
    why = f"{plan.why}; with disks, network and the rest {whole:.4g} {plan.currency} per 1000, at most {limit:g} wanted"
    return plan.model_copy(update={"why": why, "verdict": "conditional" if plan.verdict == "go" else plan.verdict})


def _apis(profile: Profile) -> list[Api]:
    """Managed services of the model that may be used: the task writes tokens, and the data may go there."""
    from inferlift.prices import apis

    if not profile.requests.output_tokens or profile.operations.tenancy == "dedicated":
        return []
    # with a residency, one whose place is not known is none
    return [api for api in apis(profile.model.name) if api.eu is True or not profile.operations.residency]


def _disk_gb(profile: Profile, plan: Sizing) -> float:
    """Of one host: the system, the weights, and the data that each host reads."""
    return HOST_DISK_GB + plan.memory.weights_bytes / 1e9 + (profile.data.size_gb or 0.0)


def _egress_gb(profile: Profile, mean: Figure) -> float | None:
    """What leaves the service: as declared, else the answers. What comes in costs nothing at AWS."""
    from inferlift.sizing.chain import figure

    declared = profile.network.egress_gb_per_month
    if declared is not None or mean.value is None:
        return declared
    answer = ANSWER_BYTES + profile.requests.output_tokens * figure("bytes_per_token_out")
    return mean.value * MONTH_S * answer / 1e9


def _usd_rate(profile: Profile) -> float:
    return 1.0 if profile.budget.currency == "USD" else profile.budget.usd_rate


def _declared(money: float | None, usd_rate: float, key: str) -> Priced | None:
    return None if money is None else Priced(money * usd_rate, f"declared: {key}")


def declared_bill(profile: Profile) -> Figure | None:
    """The old side's bill a month as the profile says it, in the budget's currency; None where it does not."""
    bill = profile.hosting.bill_monthly
    if bill is None:
        return None
    told, currency = profile.hosting.currency or profile.budget.currency, profile.budget.currency
    source = "hosting.bill_monthly"
    if told != currency:
        # `usd_rate` is USD for one unit of the budget's currency where that is no USD
        rate = profile.budget.usd_rate
        bill = bill / rate if told == "USD" else bill * rate
        source += f", {told} at {rate:g} USD"
    return Figure(value=bill, unit=f"{currency}/month", basis="declared", source=source)

"""What the profile says about the comparison of buy, lease, rent, cloud and managed service.

Money is in the budget's currency. What is null keeps its value and source from sizing/tco.yaml.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from inferlift.profile.base import Positive, Section, Share

NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
_NO_ASSUMPTION = frozenset({"cooling", "server_price", "server_kw", "rented_gpu_hour", "ups_kva", "circuits"})


class Tco(Section):
    cooling: Literal["air", "liquid", "immersion"] = Field(
        "air", description="how own or leased hosts are cooled; liquid: direct liquid cooling"
    )
    server_price: Positive | None = Field(
        None, description="of one server as chosen; null: from the table, if it is there"
    )
    server_kw: Positive | None = Field(None, description="kW that one server draws at most; null: table, or its GPUs")
    rented_gpu_hour: Positive | None = Field(None, description="price of a rented GPU hour; null: from the table")
    ups_kva: NotNegative | None = Field(None, description="kVA that the site's UPS has left; null: not checked")
    circuits: int | None = Field(None, ge=0, description="circuits that a rack of the site has; null: not checked")

    years: Positive | None = Field(None, description="years compared")
    interest_rate: NotNegative | None = Field(None, description="cost of capital a year, 0.08 = 8 %")
    hardware_life_years: Positive | None = Field(None, description="years after which hardware is bought again")
    residual_share: Share | None = Field(None, description="share of the servers' price left at the end")
    lease_interest_rate: NotNegative | None = Field(None, description="interest a year in the lease")
    support_share: NotNegative | None = Field(None, description="share of the servers' price a year for support")
    spares_share: NotNegative | None = Field(None, description="share of the servers' price for spare parts")
    network_share: NotNegative | None = Field(None, description="share of the servers' price for switches and cables")
    host_power_factor: Positive | None = Field(None, description="draw of a host over that of its GPUs")
    idle_power_share: Share | None = Field(None, description="share of its most that a host draws while it waits")
    pue_air: Positive | None = Field(None, description="energy of the site over that of air-cooled hosts")
    pue_liquid: Positive | None = Field(None, description="energy of the site over that of liquid-cooled hosts")
    pue_immersion: Positive | None = Field(None, description="energy of the site over that of immersed hosts")
    rack_limit_kw_air: Positive | None = Field(None, description="kW that air cooling takes from a rack")
    rack_limit_kw_liquid: Positive | None = Field(None, description="kW that direct liquid cooling takes from a rack")
    rack_limit_kw_immersion: Positive | None = Field(None, description="kW that an immersion tank takes")
    electricity_per_kwh: NotNegative | None = Field(None, description="price of a kWh")
    colocation_per_kw_month: NotNegative | None = Field(None, description="of a kW reserved, without electricity")
    network_per_month: NotNegative | None = Field(None, description="uplink of own or leased hosts, a month")
    storage_per_gb_month: NotNegative | None = Field(None, description="of own, leased or rented hosts")
    admin_rate: NotNegative | None = Field(None, description="of an hour of administration")
    admin_hours_own: NotNegative | None = Field(None, description="hours a host and month, own or leased")
    admin_hours_rented: NotNegative | None = Field(None, description="hours a host and month, rented")
    admin_hours_cloud: NotNegative | None = Field(None, description="hours a host and month, cloud")
    admin_hours_managed: NotNegative | None = Field(None, description="hours a month in all, managed service")
    cloud_reserved_discount: Share | None = Field(None, description="share off the price on demand")
    power_factor: Annotated[float, Field(gt=0, le=1)] | None = Field(None, description="kW over kVA")
    circuit_volts: Positive | None = Field(None, description="volts between phases of a three-phase circuit")
    circuit_amps: Positive | None = Field(None, description="amperes of a circuit")
    circuit_share: Annotated[float, Field(gt=0, le=1)] | None = Field(
        None, description="share of a circuit that may be drawn all the time"
    )
    eur_usd: Positive | None = Field(None, description="USD for one EUR, used where the budget's currency is USD")

    def assumed(self) -> dict[str, float]:
        """The assumptions that the profile sets, by the name they have in sizing/tco.yaml."""
        return {
            name: float(value)
            for name, value in self.model_dump(exclude_none=True).items()
            if name not in _NO_ASSUMPTION
        }

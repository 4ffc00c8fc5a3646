"""What the plan asks of hosts, as variables of the roles whose validators look for it on the hosts themselves. Pure."""

from __future__ import annotations

from inferlift.artifacts import Sizing

MIB_OF_SOLD_GB = 0.93 * 1024  # a card of 24 GB as sold shows 23028 MiB, one of 16 GB 15360, one of 80 GB 81559


def minima(sizing: Sizing | None) -> dict[str, object]:
    """From the plan's chain of links (docs/sizing-chain.md); what it does not know is not asked for."""
    links = {link.name: link.needed for link in sizing.chain.links} if sizing is not None and sizing.chain else {}
    needed = {name: value for name, value in links.items() if value}
    found: dict[str, object] = {}
    if "ram" in needed:
        found["base_ram_gib_least"] = {"model": round(needed["ram"], 2)}
    if "vram" in needed:
        found["nvidia_vram_mib_least"] = int(needed["vram"] * MIB_OF_SOLD_GB)
    if "pcie" in needed:
        found["nvidia_pcie_generation_least"] = int(needed["pcie"])
    if "network" in needed:
        found["gateway_network_gbps_least"] = round(needed["network"], 3)
    if "latency" in needed:
        found["gateway_latency_ms_most"] = needed["latency"]
    return found

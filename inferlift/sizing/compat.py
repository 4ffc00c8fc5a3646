"""What must agree before money is spent: formats, CUDA and driver, Fabric Manager, residency, quota, surge capacity."""

from __future__ import annotations

import math
from functools import cache
from pathlib import Path
from typing import Any, Literal

import yaml

from inferlift.artifacts import CompatCheck, Offer
from inferlift.profile import Operations, Profile
from inferlift.profile.formats import weight_format
from inferlift.sizing.hardware import Gpu

Verdict = Literal["pass", "fail", "unknown"]


def checks(
    profile: Profile,
    offer: Offer,
    gpu: Gpu | None,
    *,
    hosts: int,
    spot: bool = False,
    cuda: str | None = None,
    driver: str | None = None,
    fabric_manager: str | None = None,
    regions_offering: tuple[str, ...] = (),
) -> tuple[CompatCheck, ...]:
    """All checks of one choice. `hosts` with the spare ones.

    `cuda`: the toolkit of the image's base, "12.8"; `driver`, `fabric_manager`: versions on the host, as far as
    known; `regions_offering`: where the type can really be had (prices.regions_offering), for the next step.
    """
    operations = profile.operations
    found = [weights(gpu, profile.model.weight_format), *reader(profile), cache_of(gpu, profile.model.kv_format)]
    if gpu is not None:
        found += [
            toolkit(gpu, cuda),
            driver_of(gpu, cuda, driver),
            fabric(offer, driver, fabric_manager),
        ]
    found += [
        residency(operations, offer, regions_offering),
        offered(offer, regions_offering),
        *tenancy(profile, offer),
        *failure_domain(operations, offer),
        surge(hosts, operations),
        quota(offer, hosts, operations, spot=spot),
    ]
    return tuple(found)


def surge_hosts(hosts: int, change: Literal["rolling", "blue-green"]) -> int:
    """Hosts that run while the model is replaced: one more where it goes host by host, twice as many beside."""
    return hosts + 1 if change == "rolling" else hosts * 2


def weights(gpu: Gpu | None, name: str | None) -> CompatCheck:
    """Whether the GPU computes in the weights' format, or at least unpacks it (slower)."""
    label = "weight format"
    if name is None:
        return _unknown(label, "model.weight_format is not given", "set model.weight_format in the profile")
    told = weight_format(name)
    if told is None:
        return _unknown(label, f"{name} is not in the table of formats", "use a name of inferlift/profile/formats.csv")
    if gpu is not None and name == "int8" and gpu.ops_int8 is not None and gpu.flops and gpu.ops_int8 < gpu.flops:
        rates = f"{gpu.name} does {gpu.ops_int8 / 1e12:g} TOP/s in int8 but {gpu.flops / 1e12:g} TFLOP/s in 16 bit"
        return CompatCheck(name=label, verdict="fail", detail=rates, next_step="use fp8 or 16-bit weights there")
    return _capability(
        label, gpu, name, told.min_compute, told.min_compute_slow, "weights are unpacked first", told.source
    )


def reader(profile: Profile) -> list[CompatCheck]:
    """Whether the server reads files of that format: llama.cpp reads GGUF and nothing else, most others no GGUF."""
    kind, name = profile.server.kind, profile.model.weight_format
    told, label = _table()["readers"].get(profile.server.engine), "server"
    if name is None or told is None:
        return []
    if name in told["reads"]:
        return [CompatCheck(name=label, verdict="pass", detail=f"{kind} reads {name}", source=told["source"])]
    step = f"use one of {', '.join(told['reads'])}, or another server.kind"
    if name in told.get("tries", ()):
        return [_unknown(label, f"{kind} reads {name} as an experiment only", step, told["source"])]
    detail = f"{kind} does not read {name}"
    return [CompatCheck(name=label, verdict="fail", detail=detail, next_step=step, source=told["source"])]


def cache_of(gpu: Gpu | None, name: str | None) -> CompatCheck:
    """Whether the KV cache's format can be had on the GPU."""
    label = "KV format"
    if name is None:
        return CompatCheck(name=label, verdict="pass", detail="16 bit, the default: every GPU keeps it")
    told = _table()["kv_formats"].get(name)
    if told is None:
        return _unknown(label, f"{name} is not in the table of KV formats", f"use {', '.join(_table()['kv_formats'])}")
    least, slow, how = told["min_compute"], told.get("min_compute_slow"), told.get("slow", "")
    return _capability(label, gpu, name, least, slow, how, told["source"])


def toolkit(gpu: Gpu, cuda: str | None) -> CompatCheck:
    """Whether the image's CUDA toolkit knows the GPU's compute capability."""
    label = "CUDA toolkit"
    if cuda is None:
        why = "the image's CUDA version is not known"
        return _unknown(label, why, "invoke build, which reads it from the base image")
    if gpu.compute_capability is None:
        return _unknown(label, f"{gpu.name} has no compute capability in the table", "check its own software stack")
    told = _table()["cuda"]["capabilities"].get(gpu.compute_capability)
    if told is None:
        why = f"no toolkit is listed for compute capability {gpu.compute_capability:g}"
        return _unknown(label, why, "look it up in the toolkit's release notes")
    detail = f"{gpu.name} (compute capability {gpu.compute_capability:g}) needs CUDA {told['first']}, image has {cuda}"
    if version(cuda) >= version(told["first"]):
        return CompatCheck(name=label, verdict="pass", detail=detail, source=told["source"])
    step = f"take a base image with CUDA {told['first']} or newer"
    return CompatCheck(name=label, verdict="fail", detail=detail, next_step=step, source=told["source"])


def driver_of(gpu: Gpu, cuda: str | None, driver: str | None) -> CompatCheck:
    """Whether the host's driver runs the image's toolkit: natively, by minor version, or with the compat package."""
    label = "driver"
    if cuda is None:
        why = "the image's CUDA version is not known"
        return _unknown(label, why, "invoke build, which reads it from the base image")
    told = _table()["cuda"]
    family = told["families"].get(version(cuda)[0])
    if family is None:
        return _unknown(label, f"CUDA {cuda} is of no known family", "look it up in the toolkit's release notes")
    least, own, source = family["min_driver"], told["toolkits"].get(_minor(cuda)), family["source"]
    if driver is None:
        why = f"the driver is not known; CUDA {cuda} needs {least} or newer" + (f", {own} for all of it" if own else "")
        return _unknown(label, why, f"nvidia-smi --query-gpu=driver_version --format=csv (at least {least})", source)
    if own is not None and version(driver) >= version(own):
        detail = f"driver {driver} is at least {own}, which CUDA {cuda} was made for"
        return CompatCheck(name=label, verdict="pass", detail=detail, source=told["toolkits_source"])
    if version(driver) >= version(least):
        limited = f", but older than {own}: new features are missing and PTX is not compiled on the host" if own else ""
        detail = f"driver {driver} runs CUDA {cuda} by minor version compatibility (at least {least}){limited}"
        step = f"nothing must be done; driver {own} would lift the limit" if own else ""
        return CompatCheck(name=label, verdict="pass", detail=detail, next_step=step, source=source)
    detail = f"driver {driver} is older than {least}, the least for CUDA {version(cuda)[0]}.x"
    package = f"cuda-compat-{_minor(cuda).replace('.', '-')}"
    step = f"install driver {own or least}, or {package} in the image (data centre GPUs only; not on GeForce)"
    return CompatCheck(name=label, verdict="fail", detail=detail, next_step=step, source=told["forward_source"])


def fabric(offer: Offer, driver: str | None, fabric_manager: str | None) -> CompatCheck:
    """NVSwitch hosts: Fabric Manager must run in the driver's own version, else CUDA does not start at all."""
    label, told = "Fabric Manager", _table()["nvswitch"]
    if offer.name not in told["types"]:
        if offer.region is None and offer.gpu_count >= 8:
            why = f"whether {offer.name} joins its {offer.gpu_count} GPUs by NVSwitch is not known"
            return _unknown(
                label, why, "nvidia-smi topo -m (NV links among all GPUs), systemctl status nvidia-fabricmanager"
            )
        return CompatCheck(name=label, verdict="pass", detail=f"{offer.name} has no NVSwitch", source=told["source"])
    pin = "install nvidia-fabricmanager in exactly the driver's version, hold both, no unattended upgrades of either"
    if driver is None or fabric_manager is None:
        missing = "driver" if driver is None else "Fabric Manager"
        why = f"{offer.name} has NVSwitch and needs Fabric Manager; the version of the {missing} is not known"
        return _unknown(label, why, pin, told["source"])
    if version(driver) == version(fabric_manager):
        detail = f"Fabric Manager and driver are both {driver}"
        return CompatCheck(name=label, verdict="pass", detail=detail, source=told["source"])
    detail = f"Fabric Manager {fabric_manager} does not fit driver {driver}: CUDA will not start"
    return CompatCheck(name=label, verdict="fail", detail=detail, next_step=pin, source=told["source"])


def residency(operations: Operations, offer: Offer, regions_offering: tuple[str, ...] = ()) -> CompatCheck:
    """Whether the offer's region is one where the data may be."""
    label = "residency"
    if not operations.residency and not operations.regions:
        return CompatCheck(name=label, verdict="pass", detail="data may be anywhere")
    allowed = ", ".join(operations.regions or operations.residency)
    if offer.region is None:
        why = f"where {offer.name} stands is not known; data must stay in {allowed}"
        return _unknown(label, why, "say where the hosts are, and keep it with the plan")
    inside = operations.resides(offer.region) and (not operations.regions or offer.region in operations.regions)
    if inside:
        return CompatCheck(name=label, verdict="pass", detail=f"{offer.region} is within {allowed}")
    others = [region for region in regions_offering if operations.resides(region)]
    step = f"{offer.name} is offered within: {', '.join(others)}" if others else _OTHER_TYPE
    detail = f"{offer.region} lies outside of {allowed}"
    return CompatCheck(name=label, verdict="fail", detail=detail, next_step=step)


def offered(offer: Offer, regions_offering: tuple[str, ...] = ()) -> CompatCheck:
    """Whether the type can really be had in the region."""
    label = "offered"
    if offer.region is None:
        return CompatCheck(name=label, verdict="pass", detail="no cloud region is involved")
    if offer.offered:
        return CompatCheck(
            name=label, verdict="pass", detail=f"{offer.name} is offered in {offer.region}", source=offer.source
        )
    ask = (
        f"aws ec2 describe-instance-type-offerings --region {offer.region}"
        f" --filters Name=instance-type,Values={offer.name}"
    )
    if offer.offered is None:
        return _unknown(label, f"whether {offer.region} has {offer.name} is not known", ask)
    step = f"it is offered in: {', '.join(regions_offering)}" if regions_offering else _OTHER_TYPE
    return CompatCheck(name=label, verdict="fail", detail=f"{offer.region} has no {offer.name}", next_step=step)


def tenancy(profile: Profile, offer: Offer) -> list[CompatCheck]:
    """Hardware of one customer's own: what the price is made of, or that it is not known."""
    if profile.operations.tenancy != "dedicated" or offer.region is None:
        return []
    how = f"{offer.name} as dedicated instances: a rate of their own, and a fee for the region while one runs there"
    if offer.usd_dedicated_per_hour is not None:
        return [CompatCheck(name="tenancy", verdict="pass", detail=how, source=offer.dedicated_source)]
    return [_unknown("tenancy", f"{how}; the rate is not known", "./invoke prices --refresh")]


def failure_domain(operations: Operations, offer: Offer) -> list[CompatCheck]:
    """Whether hosts can be spread so that a zone may fail, where that is asked for."""
    if operations.failure_domain != "zone":
        return []
    label = "failure domain"
    if not offer.zones:
        why = (
            f"in which zones {offer.name} can be had is not known" if offer.region else "the hosts' sites are not told"
        )
        return [_unknown(label, why, "spread the hosts over two sites that fail apart, or set failure_domain: host")]
    told = f"{offer.region} has {offer.name} in {', '.join(offer.zones)}"
    if len(offer.zones) > 1:
        return [CompatCheck(name=label, verdict="pass", detail=told, source=offer.source)]
    step = "another type, another region (operations.regions), or operations.failure_domain: host"
    return [CompatCheck(name=label, verdict="fail", detail=f"{told} alone: it fails with that zone", next_step=step)]


def surge(hosts: int, operations: Operations) -> CompatCheck:
    """What a change of the model takes besides the running hosts. It is a cost, and a question to the quota."""
    most = surge_hosts(hosts, operations.model_change)
    how = (
        "host by host: one more meanwhile" if operations.model_change == "rolling" else "beside the old: twice as many"
    )
    return CompatCheck(
        name="surge capacity",
        verdict="pass",
        detail=f"{hosts} hosts, {most} while the model changes ({how})",
        next_step=f"hold the right to {most} hosts (quota), and capacity if the type is scarce",
        source="operations.model_change",
    )


def quota(offer: Offer, hosts: int, operations: Operations, *, spot: bool = False) -> CompatCheck:
    """vCPUs of the running hosts and of the surge against the account's quota for the family."""
    label = "quota"
    if offer.region is None:
        return CompatCheck(name=label, verdict="pass", detail="no account's quota is involved")
    if offer.vcpu is None:
        return _unknown(label, f"the vCPUs of {offer.name} are not known", "look them up and ask for the quota")
    most = surge_hosts(hosts, operations.model_change)
    needed, running = math.ceil(most * offer.vcpu), math.ceil(hosts * offer.vcpu)
    told = quota_code(offer.name)
    code, name = (None, "instances") if told is None else (told["spot" if spot else "on_demand"], told["name"])
    source = str(_table()["quotas_source"])
    kind = f"{'spot' if spot else 'on demand'} {name}"
    detail = f"{hosts} x {offer.vcpu:g} = {running} vCPU, {needed} while the model changes ({kind})"
    step = (
        f"aws service-quotas request-service-quota-increase --service-code ec2 --quota-code {code}"
        f" --desired-value {needed} --region {offer.region}"
        if code
        else f"ask AWS for {needed} vCPU of {name} in {offer.region}"
    )
    if operations.quota_vcpus is None:
        read = f"aws service-quotas get-service-quota --service-code ec2 --quota-code {code} --region {offer.region}"
        why = f"{detail}; the account's quota is not known (new accounts often have 0)"
        return _unknown(
            label, why, f"{read if code else 'look it up'}, then operations.quota_vcpus; else: {step}", source
        )
    if operations.quota_vcpus >= needed:
        detail = f"{detail}, of {operations.quota_vcpus}"
        return CompatCheck(name=label, verdict="pass", detail=detail, source=source)
    short = "the running hosts alone exceed it" if operations.quota_vcpus < running else "only the change exceeds it"
    detail = f"{detail}, of {operations.quota_vcpus}: {short}"
    return CompatCheck(name=label, verdict="fail", detail=detail, next_step=step, source=source)


def quota_code(instance_type: str) -> dict[str, str] | None:
    """Service Quotas codes (on_demand, spot) of an EC2 type's family; None: no family is known."""
    letters = instance_type.split(".")[0]
    found = [row for row in _table()["quotas"] if letters.startswith(row["prefix"])]
    best: dict[str, str] | None = max(found, key=lambda row: len(row["prefix"]), default=None)
    return best


def version(text: str) -> tuple[int, ...]:
    """Numbers of a version, "525.60.13" or "12.8", for comparing."""
    return tuple(int(part) for part in text.split(".") if part.isdigit())


_OTHER_TYPE = "choose another type of the plan, or another region"


def _capability(
    label: str, gpu: Gpu | None, name: str, least: float | None, slow: float | None, how: str, source: str
) -> CompatCheck:
    if gpu is None:
        return CompatCheck(name=label, verdict="pass", detail=f"{name} on a CPU: the server decides", source=source)
    if least is None and slow is None:
        detail = f"{name} asks nothing of the GPU"
        return CompatCheck(name=label, verdict="pass", detail=detail, source=source)
    if gpu.compute_capability is None:
        why = f"{gpu.name} has no compute capability in the table"
        return _unknown(label, why, "check its own software stack", source)
    has = f"{gpu.name} has compute capability {gpu.compute_capability:g}"
    if least is not None and gpu.compute_capability >= least:
        return CompatCheck(name=label, verdict="pass", detail=f"{has}; {name} needs {least:g}", source=source)
    if slow is not None and gpu.compute_capability >= slow:
        better = f"; native from {least:g}" if least is not None else ""
        detail = f"{has}; {name} runs from {slow:g} ({how}){better}"
        return CompatCheck(name=label, verdict="pass", detail=detail, source=source)
    needed = min(limit for limit in (least, slow) if limit is not None)
    step = f"take a GPU of compute capability {needed:g} or newer, or another format"
    return CompatCheck(
        name=label, verdict="fail", detail=f"{has}; {name} needs {needed:g}", next_step=step, source=source
    )


def _unknown(label: str, detail: str, next_step: str, source: str = "") -> CompatCheck:
    return CompatCheck(name=label, verdict="unknown", detail=detail, next_step=next_step, source=source)


def _minor(cuda: str) -> str:
    return ".".join(str(part) for part in version(cuda)[:2])


@cache
def _table() -> dict[str, Any]:
    told: dict[str, Any] = yaml.safe_load(Path(__file__).with_name("compat.yaml").read_text(encoding="utf-8"))
    return told

"""Moto's server in this process, with what moto lacks, faults on demand and, if wanted, a lab host per instance."""

from __future__ import annotations

import base64
import functools
import itertools
import json
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from moto.core.responses import ActionResult
from moto.ec2.exceptions import EC2ClientError
from moto.ec2.models import ec2_backends
from moto.ec2.models.amis import Ami
from moto.ec2.models.elastic_ip_addresses import ElasticAddress
from moto.ec2.models.instances import InstanceBackend
from moto.ec2.responses import EC2Response
from moto.iam.aws_managed_policies import aws_managed_policies_data
from moto.iam.models import AWSManagedPolicy, IAMBackend
from moto.route53.models import Route53Backend
from moto.server import ThreadedMotoServer
from moto.servicequotas.models import ServiceQuotasBackend
from moto.ssm.models import Parameter, SimpleSystemManagerBackend

from tests.standin_aws import names

ACCOUNT = "123456789012"
ENVIRONMENT = {
    "AWS_ACCESS_KEY_ID": "standin",
    "AWS_SECRET_ACCESS_KEY": "standin",
    "AWS_DEFAULT_REGION": "eu-central-1",
    "AWS_EC2_METADATA_DISABLED": "true",
}
AMI = {"x86_64": "ami-0a0a0a0a0a0a0a0a0", "arm64": "ami-0b0b0b0b0b0b0b0b0"}


# Parameters of AWS' own that name images; moto has those of Amazon Linux only.
IMAGES = ("/aws/service/deeplearning/", "/aws/service/debian/", "/aws/service/canonical/")


@dataclass
class Reservation:
    id: str
    request: dict[str, Any]
    state: str = "active"


@dataclass
class Cloud:
    """The stand-in's knobs and its memory. Faults: code to answer with, by (operation, zone)."""

    url: str = ""
    faults: dict[tuple[str, str], str] = field(default_factory=dict)
    quotas: dict[str, float] = field(default_factory=dict)
    reservations: dict[str, Reservation] = field(default_factory=dict)
    placements: dict[str, dict[str, Any]] = field(default_factory=dict)
    asked: list[tuple[str, str]] = field(default_factory=list)  # (operation, zone) of capacity requests
    consoles: dict[str, str] = field(default_factory=dict)  # instance -> host key
    hosts: Any = None  # tests.standin_aws.hosts.Hosts, or None

    def fault(self, operation: str, zone: str) -> None:
        self.asked.append((operation, zone))
        for key in ((operation, zone), (operation, "*")):
            if code := self.faults.get(key):
                raise EC2ClientError(code, f"{operation} in {zone}: the stand-in was told to say so")


_CLOUD = Cloud()
_NUMBERS = itertools.count(1)


@contextmanager
def cloud(hosts: Any = None) -> Iterator[Cloud]:
    """A fresh cloud behind a URL of this machine, with moto's gaps filled; everything is put back afterwards."""
    global _CLOUD
    made = _CLOUD = Cloud(hosts=hosts)
    undo = [
        _replace(EC2Response, "create_capacity_reservation", _create_reservation),
        _replace(EC2Response, "describe_capacity_reservations", _describe_reservations),
        _replace(EC2Response, "cancel_capacity_reservation", _cancel_reservation),
        _replace(EC2Response, "create_placement_group", _create_placement),
        _replace(EC2Response, "describe_placement_groups", _describe_placements),
        _replace(EC2Response, "delete_placement_group", _delete_placement),
        _replace(EC2Response, "get_spot_placement_scores", _scores),
        _replace(EC2Response, "get_console_output", _console),
        _replace(ServiceQuotasBackend, "get_service_quota", _quota),
        _wrap(SimpleSystemManagerBackend, "get_parameter", _image_parameter),
        _wrap(IAMBackend, "attach_role_policy", _attach),
        _wrap(InstanceBackend, "run_instances", _run),
        _wrap(InstanceBackend, "terminate_instances", _terminate),
        _wrap(InstanceBackend, "stop_instances", _stop),
        _wrap(InstanceBackend, "start_instances", _start),
        _wrap(ElasticAddress, "__init__", _address),
        _replace(Route53Backend, "change_resource_record_sets", names.change),
    ]
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    made.url = f"http://{host}:{port}"
    try:
        reset()
        yield made
    finally:
        server.stop()
        for put_back in undo:
            put_back()


def reset() -> None:
    """Empty: no resource, no fault, no memory."""
    urllib.request.urlopen(urllib.request.Request(f"{_CLOUD.url}/moto-api/reset", method="POST")).close()
    for memory in (_CLOUD.faults, _CLOUD.quotas, _CLOUD.reservations, _CLOUD.placements, _CLOUD.consoles):
        memory.clear()
    _CLOUD.asked.clear()


# --- what moto lacks -------------------------------------------------------------------------------------------


def _create_reservation(self: Any) -> ActionResult:
    request = {
        key: self._get_param(key)
        for key in (
            "InstanceType", "AvailabilityZone", "InstanceCount", "InstanceMatchCriteria", "EndDateType", "Tenancy",
            "ClientToken", "InstancePlatform",
        )
    }  # fmt: skip
    request["Tags"] = [t for spec in self._get_param("TagSpecifications", []) for t in spec.get("Tags", [])]
    for known in _CLOUD.reservations.values():
        if known.request["ClientToken"] == request["ClientToken"]:
            return ActionResult({"CapacityReservation": _shown(known)})
    _CLOUD.fault("CreateCapacityReservation", request["AvailabilityZone"])
    made = Reservation(f"cr-{next(_NUMBERS):017x}", request)
    _CLOUD.reservations[made.id] = made
    return ActionResult({"CapacityReservation": _shown(made)})


def _describe_reservations(self: Any) -> ActionResult:
    filters = self._filters_from_querystring()
    found = [_shown(r) for r in _CLOUD.reservations.values()]
    return ActionResult({"CapacityReservations": [f for f in found if _matches(f, filters)]})


def _cancel_reservation(self: Any) -> ActionResult:
    known = _CLOUD.reservations.get(self._get_param("CapacityReservationId"))
    if known is None:
        raise EC2ClientError("InvalidCapacityReservationId.NotFound", "there is none")
    known.state = "cancelled"
    return ActionResult({"Return": True})


def _shown(one: Reservation) -> dict[str, Any]:
    return {**one.request, "CapacityReservationId": one.id, "State": one.state}


def _create_placement(self: Any) -> ActionResult:
    name = self._get_param("GroupName")
    if name in _CLOUD.placements:
        raise EC2ClientError("InvalidPlacementGroup.Duplicate", f"{name} exists")
    tags = [t for spec in self._get_param("TagSpecifications", []) for t in spec.get("Tags", [])]
    made = {"GroupName": name, "Strategy": self._get_param("Strategy"), "State": "available", "Tags": tags}
    _CLOUD.placements[name] = made
    return ActionResult({"PlacementGroup": made})


def _describe_placements(self: Any) -> ActionResult:
    filters = self._filters_from_querystring()
    names = self._get_param("GroupNames", [])
    found = [p for p in _CLOUD.placements.values() if not names or p["GroupName"] in names]
    return ActionResult({"PlacementGroups": [p for p in found if _matches(p, filters)]})


def _delete_placement(self: Any) -> ActionResult:
    _CLOUD.placements.pop(self._get_param("GroupName"), None)
    return ActionResult({})


def _matches(shown: dict[str, Any], filters: dict[str, list[str]]) -> bool:
    return all(
        any(t["Key"] == key[4:] and t["Value"] in values for t in shown["Tags"])
        for key, values in filters.items()
        if key.startswith("tag:")
    )


def _scores(self: Any) -> ActionResult:
    regions = self._get_param("RegionNames", []) or [self.region]
    return ActionResult({"SpotPlacementScores": [{"Region": r, "Score": 7} for r in regions]})


def _console(self: Any) -> ActionResult:
    """As cloud-init prints it. Without lab hosts every instance has a key of its own, made up."""
    identity = self._get_param("InstanceId")
    self.ec2_backend.get_instance(identity)
    key = _CLOUD.consoles.get(identity, f"ssh-ed25519 {base64.b64encode(identity.encode()).decode()}")
    text = f"boot\n-----BEGIN SSH HOST KEY KEYS-----\n{key} root@host\n-----END SSH HOST KEY KEYS-----\n"
    return ActionResult({"InstanceId": identity, "Output": base64.b64encode(text.encode()).decode()})


def _quota(self: Any, service_code: str, quota_code: str) -> dict[str, Any]:
    value = _CLOUD.quotas.get(quota_code, 1152.0)
    return {"ServiceCode": service_code, "QuotaCode": quota_code, "Value": value, "QuotaName": quota_code}


def _image_parameter(original: Callable[..., Any], self: Any, name: str, *rest: Any, **more: Any) -> Any:
    if not name.startswith(IMAGES):
        return original(self, name, *rest, **more)
    arch = "arm64" if "arm64" in name else "x86_64"
    amis = ec2_backends[self.account_id][self.region_name].amis
    if AMI[arch] not in amis:
        backend = ec2_backends[self.account_id][self.region_name]
        amis[AMI[arch]] = Ami(backend, AMI[arch], name="standin", root_device_name="/dev/xvda", architecture=arch)
    return Parameter(
        account_id=self.account_id, name=name, value=AMI[arch], parameter_type="String", description="",
        allowed_pattern=None, keyid=None, last_modified_date=datetime(2026, 1, 1, tzinfo=UTC), version=1,
        data_type="aws:ec2:image",
    )  # fmt: skip


def _attach(original: Callable[..., Any], self: Any, policy_arn: str, role_name: str) -> Any:
    """AWS' own policies, each when it is asked for: loading all of them at every reset takes a second."""
    own = ":iam::aws:policy" in policy_arn
    if own and policy_arn not in self.managed_policies:
        name = policy_arn.rpartition("/")[2]
        data = json.loads(aws_managed_policies_data).get(name)
        if data is not None:
            self.managed_policies[policy_arn] = AWSManagedPolicy.from_data(
                name, self.account_id, self.region_name, data
            )
    return original(self, policy_arn, role_name)


# --- machines behind instances -----------------------------------------------------------------------------------


def _run(original: Callable[..., Any], self: Any, *rest: Any, **more: Any) -> Any:
    subnet = more.get("subnet_id") or next((n.get("SubnetId") for n in more.get("nics") or []), None)
    zone = self.get_subnet(subnet).availability_zone if subnet else str(more.get("placement"))
    _CLOUD.fault("RunInstances", zone)
    reservation = original(self, *rest, **more)
    for instance in reservation.instances:
        if _CLOUD.hosts is not None:
            for interface in instance.nics.values():
                interface.public_ip = interface.public_ip and instance.private_ip  # a lab host has one address
            _CLOUD.consoles[instance.id] = _CLOUD.hosts.boot(instance)
    return reservation


def _terminate(original: Callable[..., Any], self: Any, instance_ids: list[str]) -> Any:
    for identity in instance_ids if _CLOUD.hosts is not None else ():
        _CLOUD.hosts.remove(identity)
    return original(self, instance_ids)


def _stop(original: Callable[..., Any], self: Any, instance_ids: list[str]) -> Any:
    for identity in instance_ids if _CLOUD.hosts is not None else ():
        _CLOUD.hosts.stop(identity)
    return original(self, instance_ids)


def _start(original: Callable[..., Any], self: Any, instance_ids: list[str]) -> Any:
    for identity in instance_ids if _CLOUD.hosts is not None else ():
        _CLOUD.hosts.start(identity)
    return original(self, instance_ids)


def _address(original: Callable[..., Any], self: Any, backend: Any, *rest: Any, **more: Any) -> None:
    original(self, backend, *rest, **more)
    if _CLOUD.hosts is not None:
        self.public_ip = _CLOUD.hosts.address(backend.region_name)
        tags = more.get("tags") or {}
        if "front-address" in str(tags.get("inferlift:resource", "")):
            _CLOUD.hosts.front(self.public_ip)


def _replace(owner: Any, name: str, new: Callable[..., Any]) -> Callable[[], None]:
    known = owner.__dict__.get(name)
    setattr(owner, name, new)
    return lambda: setattr(owner, name, known) if known is not None else delattr(owner, name)


def _wrap(owner: Any, name: str, around: Callable[..., Any]) -> Callable[[], None]:
    original = getattr(owner, name)

    @functools.wraps(original)
    def wrapped(self: Any, *rest: Any, **more: Any) -> Any:
        return around(original, self, *rest, **more)

    return _replace(owner, name, wrapped)

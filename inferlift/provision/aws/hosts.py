"""Hosts of one site: each a group of exactly one instance over a launch template, so that making can be repeated.

`ec2.Instance` is not idempotent (a run killed right after RunInstances makes a second one); a named group is.
"""

from __future__ import annotations

import base64
import hashlib
import json
from pathlib import Path
from string import Template

import pulumi
from pulumi_aws import autoscaling, ec2

from inferlift.artifacts.fleet import HostGroup
from inferlift.provision.aws import plan as planning
from inferlift.provision.aws.identity import HostIdentity
from inferlift.provision.aws.network import Firewalls, Network, has_front
from inferlift.provision.aws.scope import Scope
from inferlift.provision.aws.tables import InstanceType, instance_type

DATA_DEVICE = "/dev/sdf"
# A stopped or lost host must not be replaced by an unconfigured one behind our back: the next deploy makes it anew.
SUSPENDED = ("AZRebalance", "ReplaceUnhealthy")
SPARE_TIME = "15m"  # the provider's own retries end then; capacity was asked for before


class Hosts(pulumi.ComponentResource):
    """All hosts of a site, its bastion included. `gateway_targets` are attached to the gateways' groups."""

    def __init__(
        self,
        scope: Scope,
        groups: list[tuple[str, HostGroup, int]],
        network: Network,
        firewalls: Firewalls,
        identity: HostIdentity,
        public_key: str,
        gateway_targets: list[pulumi.Output[str]],
    ) -> None:
        super().__init__("inferlift:aws:Hosts", scope.part("hosts"))
        self._scope, self._network, self._firewalls = scope, network, firewalls
        self._identity, self._key = identity, public_key
        self._templates: dict[str, ec2.LaunchTemplate] = {}
        self._cluster = self._placement() if scope.plan.nodes_per_replica > 1 else None
        for name, group, number in groups:
            assert group.instance_type is not None  # noqa: S101 - planning refuses a group without one
            kind = instance_type(group.instance_type)
            zone = planning.zone_of(scope.plan, scope.site, group.role, number)
            public = group.role == "gateway" and not has_front(scope)
            template = self._template(name, group.role, kind, group.market, zone, public)
            targets = gateway_targets if group.role == "gateway" else []
            self._one(name, group.role, template, zone, public=public, spot=group.market == "spot", targets=targets)
        if scope.settings.admin_ranges:
            zone = scope.site.zones[0]
            template = self._template("bastion", "bastion", instance_type("t3.micro"), "on-demand", zone, public=True)
            self._one("bastion", "bastion", template, zone, public=True, spot=False, targets=[])
        self.register_outputs({})

    def _one(
        self,
        name: str,
        role: str,
        template: ec2.LaunchTemplate,
        zone: str,
        *,
        public: bool,
        spot: bool,
        targets: list[pulumi.Output[str]],
    ) -> None:
        scope = self._scope
        subnet = (self._network.public if public else self._network.private)[zone]
        group = autoscaling.Group(
            scope.part(name),
            name=scope.name(name),
            min_size=1,
            max_size=1,
            desired_capacity=1,
            vpc_zone_identifiers=[subnet],
            launch_template=autoscaling.GroupLaunchTemplateArgs(
                id=template.id, version=template.latest_version.apply(str)
            ),
            health_check_type="EC2",
            suspended_processes=list(SUSPENDED),
            capacity_rebalance=False,
            target_group_arns=list(targets),
            wait_for_capacity_timeout=SPARE_TIME,
            force_delete=True,
            tags=[
                autoscaling.GroupTagArgs(key=key, value=value, propagate_at_launch=True)
                for key, value in scope.tags(name, role=role, name=name).items()
            ],
            # another launch template is another host, as in the lab: old ones are not mixed with new ones
            opts=scope.child(self, replace_on_changes=["launchTemplate.id"], delete_before_replace=True),
        )
        if scope.plan.expires_at is not None:
            autoscaling.Schedule(
                scope.part(f"{name}-expiry"),
                scheduled_action_name=scope.name(f"{name}-expiry"),
                autoscaling_group_name=group.name,
                start_time=scope.plan.expires_at,
                min_size=0,
                max_size=0,
                desired_capacity=0,
                opts=scope.child(self),
            )

    def _template(
        self, name: str, role: str, kind: InstanceType, market: str, zone: str, public: bool
    ) -> ec2.LaunchTemplate:
        """The launch template of one host; its name tells what is in it, so that a change makes another host."""
        scope = self._scope
        image = scope.site.images[role]
        user_data = cloud_config(name, self._key)
        reservation = scope.site.reservations.get(zone) if role == "model" else None
        block = scope.settings.capacity_block_id if role == "model" and kept(scope) == "capacity-block" else None
        what = [
            kind.name,
            image,
            market,
            scope.plan.tenancy,
            public,
            user_data,
            _disks(scope, role),
            reservation,
            block,
            *(["guards the name"] if role == "monitor" and scope.plan.guard_rights else []),  # another role
        ]
        digest = hashlib.sha256(json.dumps(what).encode()).hexdigest()[:6]
        return ec2.LaunchTemplate(
            scope.part(f"{name}-template"),
            name=f"{scope.name(name)}-{digest}",
            description=f"{name}: {kind.name}",
            image_id=image,
            instance_type=kind.name,
            user_data=base64.b64encode(user_data.encode()).decode(),
            update_default_version=True,
            ebs_optimized="true",
            iam_instance_profile=ec2.LaunchTemplateIamInstanceProfileArgs(
                arn=self._identity.monitor_arn if role == "monitor" else self._identity.profile_arn
            ),
            # Version 2 alone: a request forged through the service cannot read the host's credentials. Two hops,
            # since containers on a bridge are one away.
            metadata_options=ec2.LaunchTemplateMetadataOptionsArgs(
                http_endpoint="enabled", http_tokens="required", http_put_response_hop_limit=2
            ),
            block_device_mappings=_volumes(scope, role),
            network_interfaces=self._interfaces(role, kind, public),
            placement=ec2.LaunchTemplatePlacementArgs(
                availability_zone=zone,
                tenancy="dedicated" if scope.plan.tenancy == "dedicated" else "default",
                group_name=self._cluster.name if self._cluster and role == "model" else None,
            ),
            instance_market_options=_market(market, block),
            capacity_reservation_specification=_reserved(block or reservation),
            tag_specifications=[
                ec2.LaunchTemplateTagSpecificationArgs(
                    resource_type=kind_of, tags=scope.tags(name, role=role, name=name)
                )
                for kind_of in ("instance", "volume", "network-interface")
            ],
            tags=scope.tags(f"{name}-template", role=role),
            opts=scope.child(self),
        )

    def _interfaces(self, role: str, kind: InstanceType, public: bool) -> list[ec2.LaunchTemplateNetworkInterfaceArgs]:
        """One interface; between the hosts of one replica EFA on every card that has it.

        Source: https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/efa-acc-inst-types.html
        """
        groups = [self._firewalls.groups[role]]

        def interface(card: int, device: int, type_: str | None) -> ec2.LaunchTemplateNetworkInterfaceArgs:
            return ec2.LaunchTemplateNetworkInterfaceArgs(
                network_card_index=card,
                device_index=device,
                interface_type=type_,
                security_groups=groups,
                delete_on_termination="true",
                associate_public_ip_address="true" if public and (card, device) == (0, 0) else "false",
            )

        if role != "model" or self._scope.plan.nodes_per_replica == 1:
            return [interface(0, 0, None)]
        if kind.network_cards == 1:
            return [interface(0, 0, "efa")]
        first_card = 0 if kind.efa_interfaces >= kind.network_cards else 1
        return [
            interface(0, 0, None),
            *(interface(card, 1 if card == 0 else 0, "efa-only") for card in range(first_card, kind.network_cards)),
        ]

    def _placement(self) -> ec2.PlacementGroup:
        scope = self._scope
        return ec2.PlacementGroup(
            scope.part("cluster"),
            name=scope.name("cluster"),
            strategy="cluster",
            tags=scope.tags("cluster"),
            opts=scope.child(self),
        )


def cloud_config(hostname: str, public_key: str) -> str:
    """The host's user data."""
    text = (Path(__file__).parent / "user_data.yaml").read_text(encoding="utf-8")
    return Template(text).substitute(hostname=hostname, public_key=public_key)


def kept(scope: Scope) -> str:
    return scope.plan.reservation


def _disks(scope: Scope, role: str) -> list[int]:
    s = scope.settings
    return [s.root_gb, *([s.data_gb, s.disk_iops, s.disk_mb_per_s] if role == "model" else [])]


def _volumes(scope: Scope, role: str) -> list[ec2.LaunchTemplateBlockDeviceMappingArgs]:
    """Encrypted gp3. The data disk outlives its host: it is listed, and removed with --delete-data only."""
    settings = scope.settings
    found = [
        ec2.LaunchTemplateBlockDeviceMappingArgs(
            device_name=scope.site.root_devices.get(role, "/dev/xvda"),
            ebs=ec2.LaunchTemplateBlockDeviceMappingEbsArgs(
                encrypted="true",
                volume_type="gp3",
                volume_size=settings.root_gb if role != "bastion" else 20,
                delete_on_termination="true",
            ),
        )
    ]
    if role == "model" and settings.data_gb:
        found.append(
            ec2.LaunchTemplateBlockDeviceMappingArgs(
                device_name=DATA_DEVICE,
                ebs=ec2.LaunchTemplateBlockDeviceMappingEbsArgs(
                    encrypted="true",
                    volume_type="gp3",
                    volume_size=settings.data_gb,
                    iops=settings.disk_iops,
                    throughput=settings.disk_mb_per_s,
                    delete_on_termination="false",
                ),
            )
        )
    return found


def _market(market: str, block: str | None) -> ec2.LaunchTemplateInstanceMarketOptionsArgs | None:
    if block:
        return ec2.LaunchTemplateInstanceMarketOptionsArgs(market_type="capacity-block")
    if market == "spot":
        return ec2.LaunchTemplateInstanceMarketOptionsArgs(
            market_type="spot",
            spot_options=ec2.LaunchTemplateInstanceMarketOptionsSpotOptionsArgs(
                spot_instance_type="one-time", instance_interruption_behavior="terminate"
            ),
        )
    return None


def _reserved(reservation: str | None) -> ec2.LaunchTemplateCapacityReservationSpecificationArgs | None:
    if reservation is None:
        return None
    return ec2.LaunchTemplateCapacityReservationSpecificationArgs(
        capacity_reservation_target=ec2.LaunchTemplateCapacityReservationSpecificationCapacityReservationTargetArgs(
            capacity_reservation_id=reservation
        )
    )


__all__ = ["DATA_DEVICE", "Hosts", "cloud_config"]

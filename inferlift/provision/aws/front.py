"""What users reach: a network load balancer that passes TCP on, so that the old certificate stays on the gateway."""

from __future__ import annotations

import pulumi
from pulumi_aws import ec2, lb

from inferlift.provision.aws.network import Firewalls, Network
from inferlift.provision.aws.scope import Scope

DRAIN_S = 120  # how long a gateway that leaves may finish what it has begun


class Front(pulumi.ComponentResource):
    """Fixed addresses, one a zone, that outlive the load balancer and the gateways behind it.

    `targets`: the target groups that gateways join. With `front: alb` TLS ends at the load balancer, under a
    certificate of AWS' certificate manager, and goes on encrypted to the gateway.
    """

    targets: list[pulumi.Output[str]]

    def __init__(self, scope: Scope, network: Network, firewalls: Firewalls) -> None:
        super().__init__("inferlift:aws:Front", scope.part("front-end"))
        self._scope = scope
        zones = list(scope.site.zones[:2]) if scope.plan.spread_zones else list(scope.site.zones[:1])
        application = scope.settings.front == "alb"
        subnets = {zone: network.public[zone] for zone in (sorted(network.public)[:2] if application else zones)}
        group = lb.TargetGroup(
            scope.part("gateways"),
            name=scope.name("gateways"),
            vpc_id=network.vpc_id,
            port=443,
            protocol="HTTPS" if application else "TCP",
            target_type="instance",
            deregistration_delay=DRAIN_S,
            preserve_client_ip=None if application else "true",
            health_check=lb.TargetGroupHealthCheckArgs(
                protocol="HTTPS" if application else "TCP",
                port="443",
                path="/" if application else None,
                matcher="200-499" if application else None,  # without a key the gateway says 401: it is up
                interval=10,
                healthy_threshold=2,
                unhealthy_threshold=2,
            ),
            tags=scope.tags("gateways"),
            opts=scope.child(self),
        )
        balancer = self._application(subnets, firewalls) if application else self._network(subnets, firewalls)
        lb.Listener(
            scope.part("listener"),
            load_balancer_arn=balancer.arn,
            port=443,
            protocol="HTTPS" if application else "TCP",
            certificate_arn=scope.settings.certificate_arn if application else None,
            ssl_policy="ELBSecurityPolicy-TLS13-1-2-2021-06" if application else None,
            default_actions=[lb.ListenerDefaultActionArgs(type="forward", target_group_arn=group.arn)],
            tags=scope.tags("listener"),
            opts=scope.child(self),
        )
        self.targets = [group.arn]
        self.register_outputs({"targets": self.targets})

    def _network(self, subnets: dict[str, pulumi.Input[str]], firewalls: Firewalls) -> lb.LoadBalancer:
        scope = self._scope
        mappings = []
        for zone, subnet in subnets.items():
            what = f"front-address-{zone}"
            address = ec2.Eip(scope.part(what), domain="vpc", tags=scope.tags(what), opts=scope.child(self))
            mappings.append(lb.LoadBalancerSubnetMappingArgs(subnet_id=subnet, allocation_id=address.id))
        return lb.LoadBalancer(
            scope.part("front"),
            name=scope.name("front"),
            load_balancer_type="network",
            internal=False,
            subnet_mappings=mappings,
            security_groups=[firewalls.groups["front"]],
            enable_cross_zone_load_balancing=True,
            tags=scope.tags("front"),
            # its addresses can be held by one load balancer at a time
            opts=scope.child(self, delete_before_replace=True),
        )

    def _application(self, subnets: dict[str, pulumi.Input[str]], firewalls: Firewalls) -> lb.LoadBalancer:
        scope = self._scope
        return lb.LoadBalancer(
            scope.part("front"),
            name=scope.name("front"),
            load_balancer_type="application",
            internal=False,
            subnets=list(subnets.values()),
            security_groups=[firewalls.groups["front"]],
            drop_invalid_header_fields=True,
            idle_timeout=120,
            tags=scope.tags("front"),
            opts=scope.child(self, delete_before_replace=True),
        )

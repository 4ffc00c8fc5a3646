"""The network of one site: its own VPC over the zones that offer the type, or an existing one, and the firewalls."""

from __future__ import annotations

from collections.abc import Sequence

import pulumi
from pulumi_aws import ec2

from inferlift.provision.aws import plan as planning
from inferlift.provision.aws.scope import Scope

APP_PORT, METRICS_PORT, NODE_PORT, SSH = 8443, 8405, 9100, 22
ANYWHERE = "0.0.0.0/0"


class Network(pulumi.ComponentResource):
    """Public subnets for gateways and load balancer, private ones for model hosts and monitor; one NAT gateway.

    `public` and `private` map zones to subnet ids.
    """

    vpc_id: pulumi.Input[str]
    public: dict[str, pulumi.Input[str]]
    private: dict[str, pulumi.Input[str]]

    def __init__(self, scope: Scope) -> None:
        super().__init__("inferlift:aws:Network", scope.part("network"))
        self._scope = scope
        if scope.settings.vpc_id:
            self.vpc_id = scope.settings.vpc_id
            self.public, self.private = dict(scope.site.public), dict(scope.site.private)
        else:
            self._make()
        self.register_outputs({"vpc_id": self.vpc_id, "public": self.public, "private": self.private})

    def _make(self) -> None:
        scope = self._scope
        vpc = ec2.Vpc(
            scope.part("vpc"),
            cidr_block=scope.site.cidr,
            enable_dns_hostnames=True,
            enable_dns_support=True,
            tags=scope.tags("vpc"),
            opts=scope.child(self),
        )
        self.vpc_id = vpc.id
        # Everything a VPC opens by itself is closed: its default group would let all its members talk.
        ec2.DefaultSecurityGroup(
            scope.part("default-closed"), vpc_id=vpc.id, tags=scope.tags("default-closed"), opts=scope.child(self)
        )
        gateway = ec2.InternetGateway(
            scope.part("internet"), vpc_id=vpc.id, tags=scope.tags("internet"), opts=scope.child(self)
        )
        self.public, self.private = {}, {}
        for zone in sorted(scope.site.zones):
            ranges = planning.subnets(scope.site.cidr, zone)
            self.public[zone] = self._subnet("public", zone, ranges[0], vpc.id)
            self.private[zone] = self._subnet("private", zone, ranges[1], vpc.id)
        outward = self._routes("public", self.public, vpc.id)
        ec2.Route(
            scope.part("to-internet"),
            route_table_id=outward.id,
            destination_cidr_block=ANYWHERE,
            gateway_id=gateway.id,
            opts=scope.child(self),
        )
        inward = self._routes("private", self.private, vpc.id)
        self._nat(gateway, inward)
        self._endpoints(vpc.id, inward, outward)

    def _subnet(self, kind: str, zone: str, cidr: str, vpc_id: pulumi.Output[str]) -> pulumi.Output[str]:
        scope, what = self._scope, f"{kind}-{zone}"
        made = ec2.Subnet(
            scope.part(what),
            vpc_id=vpc_id,
            cidr_block=cidr,
            availability_zone=zone,
            map_public_ip_on_launch=False,
            tags=scope.tags(what),
            opts=scope.child(self),
        )
        return made.id

    def _routes(self, kind: str, subnets: dict[str, pulumi.Input[str]], vpc_id: pulumi.Output[str]) -> ec2.RouteTable:
        scope, what = self._scope, f"routes-{kind}"
        table = ec2.RouteTable(scope.part(what), vpc_id=vpc_id, tags=scope.tags(what), opts=scope.child(self))
        for zone, subnet in subnets.items():
            ec2.RouteTableAssociation(
                scope.part(f"{what}-{zone}"), route_table_id=table.id, subnet_id=subnet, opts=scope.child(self)
            )
        return table

    def _nat(self, gateway: ec2.InternetGateway, table: ec2.RouteTable) -> None:
        """How hosts without a public address reach package archives. One: a second zone would double its price."""
        scope = self._scope
        address = ec2.Eip(
            scope.part("nat-address"),
            domain="vpc",
            network_border_group=scope.site.border_group,
            tags=scope.tags("nat-address"),
            opts=scope.child(self, depends_on=[gateway]),
        )
        nat = ec2.NatGateway(
            scope.part("nat"),
            allocation_id=address.id,
            subnet_id=self.public[scope.site.zones[0]],
            tags=scope.tags("nat"),
            opts=scope.child(self, depends_on=[gateway]),
        )
        ec2.Route(
            scope.part("to-nat"),
            route_table_id=table.id,
            destination_cidr_block=ANYWHERE,
            nat_gateway_id=nat.id,
            opts=scope.child(self),
        )

    def _endpoints(self, vpc_id: pulumi.Output[str], *tables: ec2.RouteTable) -> None:
        """S3 without the NAT gateway (weights are large), and Session Manager without the internet."""
        scope = self._scope
        region = scope.site.region
        ec2.VpcEndpoint(
            scope.part("s3"),
            vpc_id=vpc_id,
            service_name=f"com.amazonaws.{region}.s3",
            vpc_endpoint_type="Gateway",
            route_table_ids=[table.id for table in tables],
            tags=scope.tags("s3"),
            opts=scope.child(self),
        )
        group = ec2.SecurityGroup(
            scope.part("endpoints"),
            name=scope.name("endpoints"),
            description="AWS interface endpoints, from inside",
            vpc_id=vpc_id,
            ingress=[_from_ranges(443, [scope.site.cidr], "hosts of this network")],
            tags=scope.tags("endpoints"),
            opts=scope.child(self),
        )
        for service in ("ssm", "ssmmessages", "ec2messages"):
            ec2.VpcEndpoint(
                scope.part(service),
                vpc_id=vpc_id,
                service_name=f"com.amazonaws.{region}.{service}",
                vpc_endpoint_type="Interface",
                private_dns_enabled=True,
                subnet_ids=[self.private[scope.site.zones[0]]],
                security_group_ids=[group.id],
                tags=scope.tags(service),
                opts=scope.child(self),
            )


class Firewalls(pulumi.ComponentResource):
    """A security group for each role. 443 from the stated ranges only; SSH from the bastion, or not at all."""

    groups: dict[str, pulumi.Output[str]]

    def __init__(self, scope: Scope, network: Network) -> None:
        super().__init__("inferlift:aws:Firewalls", scope.part("firewalls"))
        self._scope, self._vpc = scope, network.vpc_id
        self.groups = {}
        ssh = []
        if scope.settings.admin_ranges:
            admins = [_from_ranges(SSH, scope.settings.admin_ranges, "administrators")]
            self._group("bastion", "the way in for administrators", admins)
            ssh = [self._from(SSH, "bastion")]
        if not scope.plan.batch:
            self._roles(ssh)
        else:
            self._group("queue", "hosts of the queue: nothing comes in", [])
        self.register_outputs({"groups": self.groups})

    def _roles(self, ssh: list[ec2.SecurityGroupIngressArgs]) -> None:
        scope = self._scope
        users = [_from_ranges(443, scope.settings.user_ranges, "users")]
        if has_front(scope):
            self._group("front", "the load balancer", users)
            users = [self._from(443, "front")]
        self._group("monitor", "the monitor", [*ssh, _from_self(NODE_PORT)])  # its API goes through SSH
        scraped = [self._from(NODE_PORT, "monitor")]
        self._group("gateway", "the gateway", [*users, *ssh, *scraped, self._from(METRICS_PORT, "monitor")])
        model = [*ssh, *scraped, self._from(APP_PORT, "gateway"), self._from(APP_PORT, "monitor")]
        if scope.plan.nodes_per_replica > 1:
            # EFA needs every protocol, both ways, among the hosts themselves and nobody else.
            model.append(ec2.SecurityGroupIngressArgs(protocol="-1", from_port=0, to_port=0, self=True))
        self._group("model", "the model hosts", model, itself=scope.plan.nodes_per_replica > 1)

    def _group(
        self, role: str, words: str, rules: Sequence[ec2.SecurityGroupIngressArgs], *, itself: bool = False
    ) -> None:
        scope = self._scope
        out = [ec2.SecurityGroupEgressArgs(protocol="-1", from_port=0, to_port=0, cidr_blocks=[ANYWHERE])]
        if itself:
            out.append(ec2.SecurityGroupEgressArgs(protocol="-1", from_port=0, to_port=0, self=True))
        made = ec2.SecurityGroup(
            scope.part(f"{role}-firewall"),
            name=scope.name(role),
            description=words,
            vpc_id=self._vpc,
            ingress=list(rules),
            egress=out,
            tags=scope.tags(f"{role}-firewall", role=role),
            opts=scope.child(self),
        )
        self.groups[role] = made.id

    def _from(self, port: int, role: str) -> ec2.SecurityGroupIngressArgs:
        return ec2.SecurityGroupIngressArgs(
            protocol="tcp",
            from_port=port,
            to_port=port,
            security_groups=[self.groups[role]],
            description=f"from {role}",
        )


def has_front(scope: Scope) -> bool:
    """A Local Zone has no network load balancer: its gateway is called directly."""
    return scope.settings.front != "none" and not planning.is_local_zone(scope.site)


def _from_ranges(port: int, ranges: Sequence[str], who: str) -> ec2.SecurityGroupIngressArgs:
    return ec2.SecurityGroupIngressArgs(
        protocol="tcp", from_port=port, to_port=port, cidr_blocks=list(ranges), description=f"from {who}"
    )


def _from_self(port: int) -> ec2.SecurityGroupIngressArgs:
    return ec2.SecurityGroupIngressArgs(protocol="tcp", from_port=port, to_port=port, self=True, description="itself")

"""A stand-in for AWS and for Pulumi's AWS provider, for tests only.

`cloud` is moto's server with what it lacks (capacity reservations, quotas, spot scores, faults), and can boot a lab
host for each instance; `provider` is a small `pulumi-resource-aws` that turns the program's resources into calls to it.

What it does not prove: that the real provider maps the same inputs to the same calls, that AWS takes them, how long
anything takes, that a load balancer forwards, that hosts in different subnets reach each other only as the firewalls
allow, that GPUs or EFA work, or what anything costs. docs/aws.md says how to show these in a real account.
"""

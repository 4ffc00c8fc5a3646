"""Pulumi program: the fleet on AWS."""

"""Pulumi program: the lab's fleet."""

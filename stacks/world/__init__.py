"""Pulumi program: the lab's old world."""

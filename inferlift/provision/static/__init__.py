"""Hosts that exist already: nothing is made. They are checked, claimed, and given back as they were."""

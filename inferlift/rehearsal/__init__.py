"""What happens when something breaks: faults planted in a lab of their own, met by the commands that users type."""

from inferlift.rehearsal.run import rehearse

__all__ = ["rehearse"]

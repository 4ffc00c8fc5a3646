"""inferlift: one migration of an AI workload, with evidence at every step and a way back."""

__version__ = "0.1.0"

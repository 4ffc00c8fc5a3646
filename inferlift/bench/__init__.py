"""The benches: what the project promises in numbers, measured with its peers in the same run."""

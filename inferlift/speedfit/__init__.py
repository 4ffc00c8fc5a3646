"""The fit behind inferlift/sizing/speed.py: `python -m inferlift.speedfit` makes speed_fit.json anew. Needs numpy."""

"""The nine stages, one thin file each, over the engines. `base.py` says what a stage is."""

"""The lab's old world for plain `pulumi up`; `lab up` runs the same program inline."""

import json
import sys
from pathlib import Path

import pulumi

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from inferlift.provision.components import world_program

config = pulumi.Config()
world = json.loads(Path(config.require("document")).read_text())
world_program(
    world["label"],
    float(world["origin_cpus"]),
    world["name"],
    config.require("image"),
    Path(config.require("public_key_file")).read_text().strip(),
)()

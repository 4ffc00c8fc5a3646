"""The fleet on AWS for plain `pulumi up`; `deploy` runs the same program inline."""

import sys
from pathlib import Path

import pulumi

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from inferlift.artifacts.fleet import DesiredFleet
from inferlift.provision.aws.program import fleet_program

config = pulumi.Config()
desired = DesiredFleet.model_validate_json(Path(config.require("document")).read_text())
fleet_program(desired, Path(config.require("public_key_file")).read_text().strip())()

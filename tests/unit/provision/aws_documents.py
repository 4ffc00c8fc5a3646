"""Fleet documents of the shipped profiles, resolved as an account would: zones, images and account are made up."""

from __future__ import annotations

from typing import Any

from inferlift.artifacts.fleet import AwsSettings, DesiredFleet
from inferlift.declaration import load
from inferlift.profile import ROOT, Profile
from inferlift.provision.aws import plan as planning

LABEL = "3fa2c1/{name}-aws/fleet"
ACCOUNT = "123456789012"
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAITest inferlift"
SETTINGS: dict[str, dict[str, Any]] = {
    "llm-13b": {"user_ranges": ("0.0.0.0/0",), "admin_ranges": ("198.51.100.0/24",)},
    "llm-70b": {"user_ranges": ("0.0.0.0/0",), "shared_weights_gb": 1000, "data_gb": 200},
    "image-edge": {"user_ranges": ("203.0.113.0/24",), "edge": ("eu-north-1", "eu-central-1-ham-1a")},
    "batch": {},
    "multimodal": {"user_ranges": ("0.0.0.0/0",), "budget_email": "ops@example.org"},
}
CHOICE = {
    "llm-13b": ("g5.xlarge", "eu-central-1", 2),
    "llm-70b": ("p5.48xlarge", "eu-north-1", 2),
    "image-edge": ("g4dn.xlarge", "eu-central-1", 1),
    "batch": ("c7i.4xlarge", "eu-central-1", 3),
    "multimodal": ("p5.4xlarge", "eu-north-1", 2),
}
PROFILES = sorted(CHOICE)


def profile(name: str) -> Profile:
    return load(name, ROOT).profile


def document(name: str, **more: Any) -> DesiredFleet:
    """Not resolved yet."""
    choice, region, replicas = CHOICE[name]
    settings = AwsSettings.model_validate({**SETTINGS[name], **more.pop("settings", {})})
    arguments = {"floors": {"poc": 1, "scale": replicas}, "expires_at": "2026-12-01T12:00:00Z", **more}
    return planning.document(
        profile(name), settings, choice=choice, region=region, label=LABEL.format(name=name), **arguments
    )


def resolved(desired: DesiredFleet) -> DesiredFleet:
    plan = planning.of(desired)
    sites = [
        site.model_copy(
            update={
                "zones": (site.name,) if planning.is_local_zone(site) else tuple(f"{site.region}{z}" for z in "bac"),
                "images": dict.fromkeys(("gateway", "monitor", "bastion"), "ami-debian") | {"model": "ami-model"},
                "root_devices": {"model": "/dev/sda1"},
                "border_group": "eu-central-1-ham-1" if planning.is_local_zone(site) else None,
            }
        )
        for site in plan.sites
    ]
    return desired.model_copy(
        update={"aws": plan.model_copy(update={"account": ACCOUNT, "sites": tuple(sites), "budget_usd": 5000.0})}
    )

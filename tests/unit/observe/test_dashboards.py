"""The dashboards are what panels.yaml says, as committed; their queries are run against a Prometheus in the lab."""

from __future__ import annotations

import json
import re

import alert_rules
import pytest
import yaml

from inferlift.observe import dashboards


@pytest.mark.parametrize("path", sorted(dashboards.FOLDER.glob("*.json")), ids=lambda p: p.stem)
def test_what_is_committed_is_what_the_builders_write(path: object) -> None:
    name = str(path).rsplit("/", 1)[-1].removesuffix(".json")
    assert (dashboards.FOLDER / f"{name}.json").read_text() == dashboards.render(name)


def test_each_panel_has_one_query_and_a_place_of_its_own() -> None:
    for path in dashboards.FOLDER.glob("*.json"):
        panels = [p for p in json.loads(path.read_text())["panels"] if p["type"] != "row"]
        places = {(p["gridPos"]["x"], p["gridPos"]["y"]) for p in panels}
        assert len(places) == len(panels)
        assert all(len(p["targets"]) == 1 and p["targets"][0]["expr"] for p in panels)


def test_recorded_series_that_panels_read_are_recorded() -> None:
    rules = alert_rules.render("rules.yml.j2", **alert_rules.EVERY) + alert_rules.render("rules-gpu.yml.j2")
    recorded = set(re.findall(r"record: (\S+)", rules))
    read = {name for p in dashboards.queries() for name in re.findall(r"inferlift:[a-z_0-9:]+", p["query"])}
    assert read <= recorded
    assert yaml.safe_load(rules.replace("groups:", "more:", 1)) is not None

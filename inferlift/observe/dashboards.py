"""Grafana dashboards from panels.yaml, for those who run Grafana: `python -m inferlift.observe.dashboards` writes them.

The builders are grafana-foundation-sdk's (extra `dev`); what it writes is committed, so that users need neither.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

FOLDER = Path(__file__).resolve().parents[2] / "templates" / "grafana"
SOURCE = "${datasource}"  # chosen in Grafana: any Prometheus data source
_WIDTH, _HEIGHT = 8, 8  # of a panel; a row of the grid is 24 wide


def queries() -> list[dict[str, Any]]:
    """Every panel, with its query and what it needs: `gpu`, `cost`, `engine`."""
    return [
        {**panel, "dashboard": name, "gpu": bool(board.get("gpu") or panel.get("gpu"))}
        for name, board in _table().items()
        for panels in board["rows"].values()
        for panel in panels
    ]


def render(name: str) -> str:
    """The dashboard's JSON as Grafana imports it. Raises KeyError for an unknown name."""
    from grafana_foundation_sdk.cog.encoder import JSONEncoder

    made: dict[str, Any] = json.loads(JSONEncoder(sort_keys=True).encode(_board(name).build()))
    made.pop("id", None)  # the instance that imports it gives one
    for panel in made["panels"]:
        if panel.get("options", ()) is None:
            del panel["options"]
    return json.dumps(made, indent=1, sort_keys=True) + "\n"


def write(folder: Path = FOLDER) -> list[Path]:
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"{name}.json" for name in _table()]
    for path in paths:
        path.write_text(render(path.stem), encoding="utf-8")
    return paths


def _board(name: str) -> Any:
    from grafana_foundation_sdk.builders import dashboard

    told = _table()[name]
    board = (
        dashboard.Dashboard(told["title"])
        .uid(f"inferlift-{name}")
        .tags(["inferlift"])
        .refresh("30s")
        .time("now-6h", "now")
        .with_variable(dashboard.DatasourceVariable("datasource").label("Prometheus").type("prometheus"))
    )
    for row, panels in told["rows"].items():
        board.with_row(dashboard.Row(row))
        for panel in _panels(panels):
            board.with_panel(panel)
    return board


def _panels(panels: list[dict[str, Any]]) -> Iterator[Any]:
    from grafana_foundation_sdk.builders import prometheus, stat, timeseries
    from grafana_foundation_sdk.models.dashboard import DataSourceRef

    for told in panels:
        kind: Any = stat.Panel() if told.get("kind") == "stat" else timeseries.Panel()
        source = DataSourceRef(type_val="prometheus", uid=SOURCE)
        query = prometheus.Dataquery().expr(told["query"]).legend_format(told["legend"]).ref_id("A")
        yield (
            kind.title(told["title"])
            .unit(told["unit"])
            .datasource(source)
            .span(_WIDTH)
            .height(_HEIGHT)
            .with_target(query)
        )


def _table() -> dict[str, dict[str, Any]]:
    table: dict[str, dict[str, Any]] = yaml.safe_load(Path(__file__).with_name("panels.yaml").read_text("utf-8"))
    return table


if __name__ == "__main__":
    print("\n".join(map(str, write())), file=sys.stderr)

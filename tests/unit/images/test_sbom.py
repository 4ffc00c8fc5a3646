from __future__ import annotations

import json
from pathlib import Path

from inferlift.images import rewrite, sbom
from inferlift.images.sbom import Component

STATUS = """Package: libjpeg-dev
Status: install ok installed
Version: 1:2.1.5-2
Description: x
 Version: not this one

Package: gone
Status: deinstall ok config-files
Version: 1
"""


def _root(folder: Path) -> Path:
    (folder / "var/lib/dpkg").mkdir(parents=True)
    (folder / "var/lib/dpkg/status").write_text(STATUS)
    wheel = folder / "usr/local/lib/python3.11/dist-packages/Pillow-11.0.dist-info"
    wheel.mkdir(parents=True)
    (wheel / "METADATA").write_text("Metadata-Version: 2.1\nName: Pillow\nVersion: 11.0\n\nText\n")
    module = folder / "app/node_modules/is-number"
    module.mkdir(parents=True)
    (module / "package.json").write_text('{"name": "is-number", "version": "7.0.0"}')
    return folder


def test_packages_of_each_kind_are_listed(tmp_path: Path) -> None:
    found = sbom.components(_root(tmp_path))
    assert [c.purl for c in found] == [
        "pkg:deb/debian/libjpeg-dev@1:2.1.5-2", "pkg:npm/is-number@7.0.0", "pkg:pypi/pillow@11.0",
    ]  # fmt: skip
    assert [c["purl"] for c in json.loads(sbom.document("app", found))["components"]] == [c.purl for c in found]


def test_the_difference_names_what_each_alpine_package_became(tmp_path: Path) -> None:
    changes = rewrite("FROM alpine\nRUN apk add --no-cache jpeg-dev=9e-r1 gcompat\n", "debian:12").changes
    now = sbom.components(_root(tmp_path))
    base = [Component("deb", "old", "1"), *now[1:2]]
    assert sbom.difference(changes, base, now) == [
        "jpeg-dev -> libjpeg-dev 1:2.1.5-2",
        "gcompat -> nothing: the base has it, or glibc needs it not",
        "+ pypi pillow 11.0",
        "- deb old 1",
    ]

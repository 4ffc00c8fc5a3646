"""The driver of each GPU: a branch that knows it, modules that drive it, and an archive that has both."""

from __future__ import annotations

import csv

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inferlift.configure.drivers import _table, driver_for
from inferlift.errors import DeclarationError
from inferlift.profile import ROOT

GPUS = sorted(_table()["gpus"])


def planned() -> dict[str, str]:
    with (ROOT / "inferlift" / "sizing" / "gpus.csv").open(newline="") as file:
        return {row["gpu"]: row["compute_cap"] for row in csv.DictReader(file)}


def test_every_gpu_that_the_planner_knows_has_a_driver_of_its_capability() -> None:
    wanted = {gpu: float(cap) for gpu, cap in planned().items() if cap.replace(".", "").isdigit()}
    assert {gpu: row["capability"] for gpu, row in _table()["gpus"].items()} == wanted


@pytest.mark.parametrize(
    ("gpu", "gpus", "cuda", "vendor", "expected"),
    [
        ("T4", 1, None, False, (535, "proprietary", "debian", "none")),
        ("H100 SXM", 1, "12.4", False, (535, "proprietary", "debian", "none")),
        ("H100 SXM", 8, "12.4", True, (580, "open", "nvidia", "nvswitch")),
        ("L40S", 4, "13.0", True, (580, "open", "nvidia", "none")),
        ("B200 SXM", 8, "12.8", True, (580, "open", "nvidia", "nvlink5")),
    ],
)
def test_on_debian_12(gpu: str, gpus: int, cuda: str | None, vendor: bool, expected: tuple[object, ...]) -> None:
    driver = driver_for(gpu, gpus, cuda=cuda, vendor=vendor)
    assert (driver.branch, driver.flavour, driver.origin, driver.fabric) == expected
    assert driver.variables()["nvidia_branch"] == expected[0]


def test_an_archive_that_has_it_comes_before_the_vendors() -> None:
    assert driver_for("H100 SXM", 8, distribution="ubuntu", release="24.04", vendor=True).origin == "ubuntu"


@pytest.mark.parametrize(
    ("gpu", "gpus", "cuda", "words"),
    [
        ("B200 SXM", 1, None, "needed: branch 570"),
        ("T4", 1, "13.0", "needed: branch 580"),
        ("A100-80GB SXM", 8, None, "no Fabric Manager"),
    ],
)
def test_what_debian_12_cannot_do_is_refused_with_a_way_on(gpu: str, gpus: int, cuda: str | None, words: str) -> None:
    with pytest.raises(DeclarationError) as caught:
        driver_for(gpu, gpus, cuda=cuda)
    assert words in caught.value.why
    assert "server.driver_repository" in caught.value.next_command


def test_an_unknown_gpu_and_an_unknown_cuda_are_refused() -> None:
    for gpu, cuda in (("MI300X", None), ("T4", "99.0")):
        with pytest.raises(DeclarationError):
            driver_for(gpu, cuda=cuda)


@given(
    gpu=st.sampled_from(GPUS),
    gpus=st.integers(1, 16),
    cuda=st.sampled_from([None, "11.8", "12.8", "13.0"]),
    archive=st.sampled_from([("debian", "12"), ("debian", "13"), ("ubuntu", "22.04"), ("ubuntu", "24.04"), ("x", "1")]),
    vendor=st.booleans(),
)
def test_no_driver_is_chosen_that_cannot_work(
    gpu: str, gpus: int, cuda: str | None, archive: tuple[str, str], vendor: bool
) -> None:
    try:
        driver = driver_for(gpu, gpus, distribution=archive[0], release=archive[1], cuda=cuda, vendor=vendor)
    except DeclarationError:
        assert not vendor  # the vendor's repository has one for each
        return
    generation = _table()["generations"][_table()["gpus"][gpu]["capability"]]
    assert driver.branch >= generation["least"]
    assert driver.flavour in generation["flavours"]
    assert cuda is None or driver.branch >= _table()["cuda"][int(cuda.split(".")[0])]
    assert vendor or driver.origin != "nvidia"
    assert driver.fabric == "none" or driver.origin != "debian"

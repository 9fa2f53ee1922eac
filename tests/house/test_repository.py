"""What the repository says of itself agrees, and invents nothing."""

import re
import subprocess
from pathlib import Path

import pytest
from test_packaging import release_of, requirements, setup, text_of

ROOT = Path(__file__).parents[2]
STAGES = ["lint", "build", "newest", "salted", "oldest", "python313", "site", "quickstart"]
# A source distribution has the package, its pages and its tests, and nothing for hosts.
whole = pytest.mark.skipif(not (ROOT / ".ci").exists(), reason="not a checkout of the repository")


def yaml_of(name):
    return pytest.importorskip("yaml").safe_load(text_of(name))


def test_what_is_not_decided_stands_in_one_place():
    """No host, no address and no handle stands in the files that would need them."""
    names = [
        "SECURITY.md",
        "CODE_OF_CONDUCT.md",
        "GOVERNANCE.md",
        "RELEASING.md",
        "docs/project.md",
    ]
    for name in names:
        text = text_of(name)
        assert not re.search(r"https?://|\S@\S|(?<!\w)@\w", text), name
    assert "project_urls" not in text_of("setup.cfg")  # else the table has a row too many
    pointing = [
        name for name in names if "docs/project.md#what-is-not-decided-yet" in text_of(name)
    ]
    assert pointing == names[:4]


def test_the_conda_recipe_asks_for_what_setup_cfg_asks_for():
    recipe = text_of("conda/meta.yaml")
    config = setup()
    asked = requirements(config["options"]["install_requires"])
    run = re.search(r"  run:\n(.*?)\n\n", recipe, re.S)[1]
    found = requirements(re.sub(r"(?m)^ *- ([\w-]+) ", r"\1", run))
    assert found.pop("python") == config["options"]["python_requires"].removeprefix(">=")
    assert found == asked
    version = re.search(r'set version = "(.+?)"', recipe)[1]
    assert f"\nversion: {version}\n" in text_of("CITATION.cff")


@whole
def test_locked_versions_are_those_that_extras_allow():
    locked = dict(re.findall(r"(?m)^([\w.-]+)==([\w.]+)", text_of(".ci/lock.txt")))
    options = setup()["options.extras_require"]
    asked = requirements(setup()["options"]["install_requires"])
    for extra in ("test", "lint", "dask", "docs", "plot", "progress"):
        asked |= requirements(re.sub(r"%\(\w+\)s|\[.*?\]", "", options[extra]))
    assert len(asked) > 20 and set(asked) <= set(locked)
    for name, version in asked.items():
        assert version is None or release_of(locked[name]) >= release_of(version), name
    ruff = re.search(r"ruff==([\d.]+)", options["lint"])[1]
    assert locked["ruff"] == ruff
    assert set(re.findall(r"ruff==([\d.]+)", text_of(".pre-commit-config.yaml"))) == {ruff}


@whole
def test_stages_of_the_whole_check_have_a_name_and_a_job():
    script = text_of(".ci/run")
    assert re.search(r'(?m)^stages="(.*)"$', script)[1].split() == STAGES
    assert re.findall(r"(?m)^stage_(\w+)\(\)", script) == STAGES
    job = yaml_of(".github/workflows/checks.yml")["jobs"]["stage"]
    assert job["strategy"]["matrix"]["stage"] == STAGES
    assert job["steps"][-1]["run"] == ".ci/run ${{ matrix.stage }}"


@whole
def test_a_stage_that_does_not_exist_is_refused_before_anything_runs():
    ran = subprocess.run([ROOT / ".ci/run", "lint", "nothing"], capture_output=True, text=True)
    assert ran.returncode == 2 and ran.stdout == ""
    assert ran.stderr == f"no stage nothing: there are {' '.join(STAGES)}\n"


@whole
def test_workflows_may_read_and_nothing_else_but_to_sign():
    for path in sorted((ROOT / ".github/workflows").glob("*.yml")):
        flow = yaml_of(f".github/workflows/{path.name}")
        assert flow["permissions"] == {"contents": "read"}
        for job in flow["jobs"].values():
            rights = job.get("permissions", {})
            assert {k for k, v in rights.items() if v == "write"} <= {"id-token", "attestations"}
    text = text_of(".github/workflows/release.yml")
    assert "secrets." not in text and "environment: release" in text


@whole
def test_issue_forms_are_forms():
    paths = sorted((ROOT / ".github/ISSUE_TEMPLATE").glob("*.yml"))
    forms = [yaml_of(f".github/ISSUE_TEMPLATE/{p.name}") for p in paths if p.stem != "config"]
    assert {path.stem for path in paths} == {"bug", "config", "mechanism", "privacy_flaw"}
    for form in forms:
        fields = [part for part in form["body"] if part["type"] != "markdown"]
        ids = [part["id"] for part in fields]
        assert form["name"] and form["description"] and len({*ids}) == len(ids) > 3
        assert all(part["attributes"]["label"] for part in fields)
        assert any(part.get("validations", {}).get("required") for part in fields)


@whole
def test_owners_own_what_is_there():
    paths = re.findall(r"(?m)^#?/(\S+)", text_of(".github/CODEOWNERS"))
    assert len(paths) > 5 and [path for path in paths if not (ROOT / path).exists()] == []


def test_findings_have_the_form_that_their_page_asks_for():
    """What they find is not asked here: they install other software, and say when it changed."""
    for path in sorted((ROOT / "findings").glob("*.sh")):
        lines, text = text_of(f"findings/{path.name}").splitlines(), path.read_text()
        assert lines[0] == "#!/usr/bin/env bash" and re.match("# .+[.]$", lines[1]), path.name
        for part in ("# Expected: ", "# Seen: ", "set -euo pipefail", "$(mktemp -d)", "trap 'rm "):
            assert part in text, (path.name, part)
        assert "dpsubspace" not in text and "assert " in text, path.name
        joined = text.replace("\\\n", " ")
        installed = [line.split("-q ")[1].split() for line in re.findall("pip.* install.*", joined)]
        unpinned = [word for words in installed for word in words if "==" not in word]
        assert installed and unpinned == [], (path.name, unpinned)
        assert subprocess.run(["bash", "-n", path]).returncode == 0, path.name

"""A project outside of the repository, which has only the wheel of Slipway."""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
import yaml

from libs.common.project.create import PACKAGE, create_project
from libs.common.project.names import Names
from libs.common.project.render import LOCK as PROJECT_LOCK
from libs.common.testing.helm import find_helm
from tools.cluster.progress import open_progress
from tools.scaffold.__main__ import main
from tools.scaffold.standalone import LIBRARY, build_wheel

ROOT = LIBRARY.parents[1]
EXAMPLES = ROOT / "libs" / "examples"
LOCK = ROOT / "3rdparty" / "python" / "default.lock"


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Create a project in a clean environment, with the versions of the lockfile."""
    folder = tmp_path_factory.mktemp("standalone")
    constraints = folder / "constraints.txt"
    versions = re.findall(r"^[\w.-]+==[^\s;\\]+", LOCK.read_text(), re.MULTILINE)
    constraints.write_text("\n".join(versions))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PIP_CONSTRAINT", str(constraints))
        patch.delenv("PYTHONPATH", raising=False)
        root = folder / "backups"
        kinds = ["--kind", "Backup", "--second-kind", "Restore"]
        options = ["--finalizer", "--webhook", "--standalone", str(root)]
        assert main(["backups", *kinds, *options]) == 0
    return root


def run_in(root: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run the Python of a project in its folder, without modules of this checkout."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return subprocess.run(
        [root / ".venv" / "bin" / "python", *words],
        cwd=root,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )


def test_package_of_the_same_name_on_an_index_is_not_installed(
    project: Path, tmp_path: Path
) -> None:
    index = tmp_path / "simple" / "slipway-operators"
    index.mkdir(parents=True)
    name = "slipway_operators-99.0.0"
    with zipfile.ZipFile(index / f"{name}-py3-none-any.whl", "w") as wheel:
        wheel.writestr(f"{PACKAGE}/stranger.py", "")
        metadata = "Metadata-Version: 2.1\nName: slipway-operators\nVersion: 99.0.0\n"
        wheel.writestr(f"{name}.dist-info/METADATA", metadata)
        wheel.writestr(f"{name}.dist-info/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        wheel.writestr(f"{name}.dist-info/RECORD", "")
    (index / "index.html").write_text(f'<a href="{name}-py3-none-any.whl">wheel</a>')
    containerfile = (project / "Containerfile").read_text()
    install = json.loads(re.findall(r"^RUN (.*)$", containerfile, re.MULTILINE)[0])
    # The index has no other packages, so only the entry of the library remains in the lock.
    lock = (project / PROJECT_LOCK).read_text()
    entry = re.search(r"^\./wheels/.*\n(?: .*\n)+", lock, re.MULTILINE)
    assert entry is not None
    (tmp_path / PROJECT_LOCK).write_text(entry[0])
    (tmp_path / "wheels").symlink_to(project / "wheels")
    common = ["--index-url", (tmp_path / "simple").as_uri(), "--no-cache-dir"]

    def list_installed(target: str, *words: str) -> set[str]:
        command = [sys.executable, *words, *common, "--target", target]
        subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
        return {path.name for path in (tmp_path / target / PACKAGE).glob("*.py")}

    by_name = list_installed(
        "name", "-m", "pip", "install", "--find-links", "wheels", "slipway-operators"
    )
    assert by_name == {"stranger.py"}, "the index offers a higher version"
    assert "version.py" in list_installed("lock", *install[1:])


def test_lock_has_a_hash_for_each_package(project: Path) -> None:
    entries = re.split(r"\n(?=[a-z.])", (project / PROJECT_LOCK).read_text())

    assert len(entries) > 20
    assert all("--hash=sha256:" in entry for entry in entries)
    assert not any(entry.startswith("slipway") for entry in entries)
    assert not any(entry.startswith("kubernetes") for entry in entries), "119 MiB for kubeconfigs"


def test_image_is_built_from_the_code_and_the_lock_only(project: Path) -> None:
    kept = (project / ".dockerignore").read_text().splitlines()[1:]

    assert kept == ["*", "!*.py", f"!{PROJECT_LOCK}", "!wheels/*.whl"]


def test_people_write_three_files(project: Path) -> None:
    assert {path.name for path in project.glob("*.py")} == {
        "api.py",
        "controller.py",
        "test_operator.py",
    }


def test_git_ignores_the_environment(project: Path, tmp_path: Path) -> None:
    git = ("git", "--git-dir", str(tmp_path / "git"), "--work-tree", str(project))
    subprocess.run([*git, "init", "--quiet"], check=True)
    status = [*git, "status", "--porcelain", "--untracked-files=all"]

    seen = subprocess.run(status, capture_output=True, text=True, check=True).stdout.splitlines()

    assert "?? controller.py" in seen
    assert not [line for line in seen if ".venv" in line or "__pycache__" in line]


def test_conformance_suite_passes_outside_of_the_repository(project: Path) -> None:
    done = run_in(project, "-m", "pytest", "-q", "-p", "no:cacheprovider")

    assert done.returncode == 0, done.stdout + done.stderr
    # The suite runs for each of the two kinds.
    assert re.search(r"\b[23][0-9] passed", done.stdout)


def test_nothing_of_the_repository_is_imported(project: Path) -> None:
    done = run_in(project, "-c", "import controller, sys; print(sorted(sys.modules))")

    names = {name.partition(".")[0] for name in re.findall(r"'([\w.]+)'", done.stdout)}
    assert PACKAGE in names
    assert not names & {"lab", "libs", "operators", "tools"}


def test_operator_runs_as_a_process_and_names_its_settings(project: Path) -> None:
    done = run_in(project, "-m", f"{PACKAGE}.run", "controller", "--help")

    assert done.returncode == 0, done.stderr
    assert "BACKUPS_LOG_LEVEL" in done.stdout


def render_chart(project: Path, *settings: str) -> str:
    """Render the chart of a project with values."""
    command = [str(find_helm()), "template", "backups", str(project / "chart")]
    values = ("image.registry=registry.example.com", *settings)
    words = [word for value in values for word in ("--set", value)]
    done = subprocess.run([*command, *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_chart_registers_the_webhook_if_its_setting_is_true(project: Path) -> None:
    assert "WebhookConfiguration" not in render_chart(project)

    documents = yaml.safe_load_all(render_chart(project, "settings.webhooks=true"))

    objects = {each["kind"]: each for each in documents if each}
    assert "MutatingWebhookConfiguration" not in objects, "it only judges"
    (webhook,) = objects["ValidatingWebhookConfiguration"]["webhooks"]
    # A refusal is enforced even while the operator is down.
    assert (webhook["failurePolicy"], webhook["timeoutSeconds"]) == ("Fail", 3)
    (container,) = objects["Deployment"]["spec"]["template"]["spec"]["containers"]
    variables = {each["name"]: each.get("value") for each in container["env"]}
    assert variables["BACKUPS_WEBHOOK_VALIDATING_CONFIGURATION"] == "backups-default"
    assert "BACKUPS_WEBHOOK_CONFIGURATION" not in variables
    assert webhook["name"] == "backups.backups.example.com"
    assert webhook["clientConfig"]["service"]["path"] == "/backups"
    assert webhook["rules"] == [
        {
            "apiGroups": ["backups.example.com"],
            "apiVersions": ["v1alpha1"],
            "resources": ["backups"],
            "operations": ["UPDATE"],
            "scope": "Namespaced",
        }
    ]


def test_chart_is_accepted_by_helm_and_grants_what_is_declared(project: Path) -> None:
    text = render_chart(project)

    assert "image: registry.example.com/backups:0.1.0" in text
    assert "name: backups.backups.example.com" in text
    assert "name: restores.backups.example.com" in text
    assert "- configmaps" in text


def test_objects_of_a_project_have_no_name_of_this_one(project: Path) -> None:
    more = ("dashboard.enabled=true", "prometheusRule.enabled=true", "podMonitor.enabled=true")
    text = render_chart(project, "settings.webhooks=true", *more)

    assert "title: backups / backups" in text or '"title":"backups / backups"' in text
    ours = re.compile(r"slipway(?![.]dev/|_operators)", re.IGNORECASE)
    assert not [line for line in text.splitlines() if ours.search(line)]


def test_test_on_a_real_api_server_runs_as_the_page_says(project: Path) -> None:
    page = (ROOT / "docs/howto/standalone-project.md").read_text()
    section = page.partition("## Test it on a real API server")[2].partition("## ")[0]
    fixtures, test = re.findall(r"```python\n(.*?)```", section, re.DOTALL)
    written = {project / "conftest.py": fixtures, project / "server_test.py": test}
    for path, text in written.items():
        path.write_text(text)
    try:
        done = run_in(project, "-m", "pytest", "-q", "-p", "no:cacheprovider", "server_test.py")
    finally:
        for path in written:
            path.unlink()

    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 passed" in done.stdout


def test_generated_files_follow_the_code(project: Path) -> None:
    generate = ("-m", f"{PACKAGE}.project", "generate")
    assert run_in(project, *generate, "--check").returncode == 0
    controller = project / "controller.py"
    before = controller.read_text()
    controller.write_text(before.replace('("create", "patch", "delete")', '("create",)'))
    try:
        done = run_in(project, *generate, "--check")
    finally:
        controller.write_text(before)

    assert done.returncode == 1
    assert "chart/files/rbac.yaml differs" in done.stderr


def test_example_of_the_library_is_a_standalone_project(project: Path, tmp_path: Path) -> None:
    root = tmp_path / "clustersecrets"
    names = Names.build("clustersecrets", "ClusterSecret", "clustersecrets.example.com")
    create_project(root, names)
    files = {"api": "api", "controller": "controller", "operator_test": "test_operator"}
    for source, target in files.items():
        text = (EXAMPLES / "clustersecrets" / f"{source}.py").read_text()
        text = text.replace("libs.examples.clustersecrets.", "").replace("libs.common", PACKAGE)
        (root / f"{target}.py").write_text(text)
    (root / ".venv").symlink_to(project / ".venv")

    assert run_in(root, "-m", f"{PACKAGE}.project", "generate").returncode == 0
    done = run_in(root, "-m", "pytest", "-q", "-p", "no:cacheprovider")
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"\b[23][0-9] passed", done.stdout)
    text = render_chart(root, "watch.clusterWide=true")
    assert "name: clustersecrets.clustersecrets.example.com" in text


def test_equal_sources_give_equal_wheels_without_tests(tmp_path: Path) -> None:
    progress = open_progress("wheel")
    wheels = [build_wheel(tmp_path / name, progress) for name in ("one", "two")]

    assert len({hashlib.sha256(wheel.read_bytes()).hexdigest() for wheel in wheels}) == 1
    with zipfile.ZipFile(wheels[0]) as archive:
        names = archive.namelist()
        assert not [name for name in names if name.endswith("_test.py")]
        assert f"{PACKAGE}/project/operator-common/Chart.yaml" in names
        assert f"{PACKAGE}/sweep/anyop/command.py" in names
        assert not [name for name in names if "/workloads/" in name or "/mutants/" in name]
        for name in names:
            if name.endswith(".py"):
                assert not re.search(rb"\b(libs[./]common|lab\.sweep)\b", archive.read(name)), name


def test_oldest_dependencies_are_those_that_tests_run_with() -> None:
    project = tomllib.loads((LIBRARY / "pyproject.toml").read_text())["project"]
    requirements = (ROOT / "3rdparty/python/requirements.txt").read_text()
    pinned = dict(re.findall(r"^([\w.-]+)==(\S+)", requirements, re.MULTILINE))
    optional = project["optional-dependencies"].values()
    for requirement in [*project["dependencies"], *(each for some in optional for each in some)]:
        found = re.match(r"([\w.-]+)>=([\w.]+)", requirement)
        assert found is not None, requirement
        assert pinned[found[1]] == found[2]

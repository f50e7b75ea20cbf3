"""How one begins: `init`, `doctor`, completion in a shell, and `dev --reload`."""

import os
import shutil
import sys
from pathlib import Path
from typing import Any

import yaml

from holdfast.cli.commands.start.project import FILES
from tests.support import forked
from tests.support.cli import ROOT, Cli
from tests.support.programs import printed_by, ran


def findings(told: Any) -> dict[str, tuple[str, str]]:
    """Return level and text of each finding by its subject."""
    return {each["subject"]: (each["level"], each["text"]) for each in told["findings"]}


def test_a_new_project_passes_its_test_and_is_not_overwritten(cli: Cli) -> None:
    done = cli("init", "My Rooms", "--json").json
    project = cli.home / "My Rooms"
    assert sorted(done["files"]) == sorted(file.name for file in project.iterdir()) == sorted(FILES)
    assert 'name = "my-rooms"' in (project / "pyproject.toml").read_text("utf-8")
    (project / "README.md").unlink()
    (project / "booking.py").write_text("mine = 1\n", "utf-8")
    refused = cli("init", "My Rooms", expect=2)
    assert "booking.py" in refused.err
    assert "nothing was written" in refused.err
    assert (project / "booking.py").read_text("utf-8") == "mine = 1\n"
    assert not (project / "README.md").exists()
    shutil.rmtree(project)
    cli("init", "My Rooms")
    command = forked.command("-m", "pytest", "-q", "-p", "no:cacheprovider", "-W", "ignore")
    printed_by(command, project, cli.environment())
    (project / "booking.py").write_text(FILES["booking.py"].replace(".pop(", ".get("), "utf-8")
    broken = ran(command, project, cli.environment())
    assert broken.returncode == 1  # a compensation that does nothing is noticed


def test_what_a_new_project_says_works(cli: Cli, tmp_path: Path) -> None:
    """As a stranger does it: in an empty directory, and by the words of its README.md."""
    home = Cli(tmp_path / "rooms")
    home.home.mkdir()
    told = home("init").err
    assert "cd " not in told  # one is there already
    assert "holdfast dev booking:agents --reload" in told
    readme = (home.home / "README.md").read_text("utf-8")
    [ask] = [line.split() for line in readme.splitlines() if line.startswith("    holdfast run")]
    assert ask[:3] == ["holdfast", "run", "clerk"]
    with home.running("dev", "booking:agents", "--reload") as dev:
        dev.until_said("Serving")
        assert "42" in home("run", "clerk", " ".join(ask[3:]).strip('"')).out
        assert "finished" in home("tasks").out
        home("doctor", "--agents", "booking:agents")
        dev.end()
    home("stop")


def test_the_worker_of_a_new_project_is_installed_from_directories_that_are_only_read(
    cli: Cli, tmp_path: Path
) -> None:
    cli("init", "rooms")
    worker = yaml.safe_load((cli.home / "rooms" / "docker-compose.yml").read_text("utf-8"))
    worker = worker["services"]["worker"]
    assert ".:/src:ro" in worker["volumes"]
    app, made, copied = tmp_path / "app", tmp_path / "made", tmp_path / "copied"
    app.mkdir()
    install = f"{sys.executable} -m pip wheel --no-deps --no-build-isolation --wheel-dir {made}"
    [shell, flag, script] = worker["command"]
    script = script.replace(str(ROOT), str(copied)).replace(" /holdfast/", f" {ROOT}/")
    script = script.replace("/src/", f"{cli.home}/rooms/").replace("pip install --quiet", install)
    printed_by([shell, flag, script.replace("exec holdfast worker booking:agents", "true")], app)
    assert (copied / "holdfast" / "workflows").samefile(copied / "workflows")
    [wheel] = made.iterdir()
    assert wheel.name.startswith("rooms-")
    assert sorted(file.name for file in (cli.home / "rooms").iterdir()) == sorted(FILES)


def test_doctor_without_a_server_or_agents_says_how_to_get_them(cli: Cli) -> None:
    told = cli("doctor", "--agents", "nowhere:agents", "--json", expect=1).json
    assert not told["ok"]
    found = findings(told)
    assert found["engine"][0] == found["agents"][0] == "error"
    assert "holdfast dev" in found["engine"][1]
    assert "nowhere" in found["agents"][1]
    assert cli("doctor", expect=1).out.startswith("ok       python:")


def test_doctor_of_a_server_finds_it_well_prints_no_key_and_names_tasks_that_nobody_serves(
    cli: Cli,
) -> None:
    (cli.home / "open").touch()
    keys = {"ANTHROPIC_API_KEY": "the-key-itself\n"}
    with cli.running("dev", "my_agents:agents", "--json") as dev:
        dev.first_json()
        served = ("--agents", "my_agents:agents")
        told = cli("doctor", "--json", *served, environment=keys)
        found = findings(told.json)
        assert told.json["ok"]
        assert "the-key-itself" not in told.out + told.err
        assert found["engine"][1].startswith("Temporal ")
        for subject in ("engine", "namespace", "search attributes", "archive", "stranded"):
            assert found[subject][0] == "ok", found
        assert found["queue"][0] == "ok"
        assert found["keys"] == ("ok", "set here: ANTHROPIC_API_KEY")
        archive = cli.data_dir / "archive"
        away = archive.rename(cli.data_dir / "elsewhere")
        archive.touch()
        assert findings(cli("doctor", "--json", expect=1).json)["archive"][0] == "error"
        archive.unlink()
        away.rename(archive)
        cli("run", "slow", "hi", "--task-id", "left", "--detach")
        dev.end()
    with cli.running("dev", "my_agents:calc", "--json") as dev:
        dev.first_json()
        told = cli("doctor", "--json").json
        assert told["ok"]  # a warning is no error
        level, text = findings(told)["stranded"]
        assert (level, "left" in text) == ("warning", True)


def test_bash_completes_after_the_installation(cli: Cli, tmp_path: Path) -> None:
    program = Path(sys.executable).parent
    environment = cli.environment(HOME=str(tmp_path), PATH=f"{program}:{os.environ['PATH']}")
    script = (
        "holdfast --install-completion bash >/dev/null; source ~/.bash_completions/holdfast.sh;"
        " COMP_WORDS=(holdfast do); COMP_CWORD=1; _holdfast_completion holdfast;"
        ' echo "${COMPREPLY[@]}"'
    )
    done = ran(["bash", "-c", script], environment=environment)
    assert done.stdout.strip() == "doctor", done.stderr


def test_dev_reloads_and_open_tasks_survive_also_a_half_written_file(cli: Cli) -> None:
    module = cli.home / "my_agents.py"
    code = module.read_text("utf-8")
    with cli.running("dev", "my_agents:agents", "--reload") as dev:
        dev.until_said("Watching")
        dev.until_said("Serving")
        cli("run", "calc", "What is (2 * 3) + 4?", "--task-id", "open", "--detach")
        (cli.home / "half.py").write_text("def f(:\n", "utf-8")
        dev.until_said("Not reloaded: half.py")
        (cli.home / "open").touch()
        module.write_text(code.replace('name="sick"', 'name="healthy"'), "utf-8")
        dev.until_said("Reloading: my_agents.py")
        assert "healthy" in dev.until_said("Serving")
        answer = cli("attach", "open").out
        assert "is 10." in answer
        module.write_text(code + "\nraise RuntimeError('no')\n", "utf-8")
        dev.until_said("The worker ended with exit code 2")
        module.write_text(code, "utf-8")
        assert "sick" in dev.until_said("Serving")
        assert dev.end(2).code == 0

"""The page on the commands has all that they take and tell."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from django.core.management import call_command, get_commands, load_command_class
from django.core.management.base import BaseCommand

from tests.test_docs import DOCS, rows, section

COMMANDS_PAGE = DOCS / "reference/commands.md"


@pytest.mark.parametrize("name", ["recheck_run", "recheck_status"])
def test_the_commands_page_has_each_option(name: str) -> None:
    command = load_command_class(get_commands()[name], name)
    usual = BaseCommand().create_parser("manage.py", "usual")._option_string_actions
    actions = command.create_parser("manage.py", name)._actions
    mine = [o for a in actions for o in a.option_strings if o not in usual]
    text = section(COMMANDS_PAGE, f"`manage.py {name}`")
    assert sorted(re.findall(r"^\| `(--[\w-]+)", text, re.MULTILINE)) == sorted(mine)


def test_the_command_cannot_work_with_wrong_settings(
    settings: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "\n| 2 | It can't work: " in section(COMMANDS_PAGE, "`manage.py recheck_run`")
    settings.RECHECK = {**settings.RECHECK, "TTL": 0}
    command = load_command_class(get_commands()["recheck_run"], "recheck_run")
    with pytest.raises(SystemExit) as ended:
        command.run_from_argv(["manage.py", "recheck_run"])
    assert ended.value.code == 2
    assert "django_recheck.E003" in capsys.readouterr().err


def test_the_commands_page_has_each_name_of_the_json(capsys: pytest.CaptureFixture[str]) -> None:
    text = section(COMMANDS_PAGE, "`manage.py recheck_run`")
    (shown,) = re.findall(r"^\{.*\}$", text, re.MULTILINE)
    call_command("recheck_run", "--json")
    told = json.loads(capsys.readouterr().out)
    assert list(json.loads(shown)) == list(told)
    table = text.partition("| name |")[2]
    assert re.findall(r"`(\w+)`", " ".join(cells[0] for cells in rows(table))) == list(told)

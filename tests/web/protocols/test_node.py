"""The clients of the protocols have the pinned versions, and their errors reach the test."""

import json

import pytest

from foldlog.tests.kit.node_fixture import NODE, PINNED, Unreachable, installed

VERSIONS = """
import { readFileSync } from 'node:fs'
import 'ai'
import '@ag-ui/client'
import '@ag-ui/core'
import '@durable-streams/client'
const names = JSON.parse(readFileSync(0, 'utf8'))
const version = name =>
  JSON.parse(readFileSync(`node_modules/${name}/package.json`, 'utf8')).version
console.log(JSON.stringify(Object.fromEntries(names.map(name => [name, version(name)]))))
"""
ECHO = """
import { createInterface } from 'node:readline'
for await (const line of createInterface({ input: process.stdin })) {
  if (line === '"end"') process.exit(7)
  console.log(line)
}
"""


def script(directory, text):
    path = directory / "script.mjs"
    path.write_text(text)
    return path


def test_the_installed_clients_are_the_pinned_ones(node, tmp_path):
    pinned = json.loads((PINNED / "package.json").read_text())["dependencies"]
    versions = node.run(script(tmp_path, VERSIONS), json.dumps(list(pinned)))
    assert json.loads(versions) == pinned
    assert NODE.exists()


def test_a_script_that_throws_fails_the_test_with_its_error(node, tmp_path):
    with pytest.raises(AssertionError, match="no such luck"):
        node.run(script(tmp_path, "throw new Error('no such luck')"))


def test_a_process_answers_each_line_and_its_end_fails_the_test(node, tmp_path):
    with node.talk(script(tmp_path, ECHO)) as echo:
        assert [echo.ask({"n": n}) for n in range(3)] == [{"n": n} for n in range(3)]
        with pytest.raises(AssertionError, match="node ended with 7"):
            echo.ask("end")


def test_the_lock_names_no_registry():
    assert '"resolved"' not in (PINNED / "package-lock.json").read_text()


def test_without_a_registry_the_clients_are_unavailable(tmp_path, monkeypatch):
    monkeypatch.setenv("npm_config_registry", "http://127.0.0.1:1")
    monkeypatch.setenv("npm_config_cache", str(tmp_path / "npm"))
    with pytest.raises(Unreachable, match="npm ci ended"):
        installed(tmp_path / "cache")
    assert not list(tmp_path.glob("cache/node/????????????????/node_modules"))


def test_a_lock_that_does_not_match_fails_the_test(tmp_path):
    for name in (".npmrc", "package-lock.json"):
        (tmp_path / name).write_bytes((PINNED / name).read_bytes())
    (tmp_path / "package.json").write_text('{"dependencies": {"ai": "7.0.1"}}')
    with pytest.raises(AssertionError, match="EUSAGE"):
        installed(tmp_path / "cache", tmp_path)

"""Tools stay in their working directory: no path, no link and no race leads out of it."""

import os
import socket
import threading
from contextlib import suppress
from time import monotonic

import pytest
from hypothesis import given, strategies as st

from foldlog.processors.tools.tool import ToolFailed
from foldlog.processors.tools.workdir import Workdir
from foldlog.tests.kit.waiting import PATIENCE_S, joined

SECRET = b"the secret outside"


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A directory that has every kind of link to a secret, and the secret beside the directory."""
    outside = tmp_path_factory.mktemp("outside")
    (outside / "secret").write_bytes(SECRET)
    (outside / "inner").mkdir()
    (outside / "inner" / "secret").write_bytes(SECRET)
    root = outside / "root"
    (root / "sub" / "deep").mkdir(parents=True)
    (root / "sub" / "file").write_bytes(b"inside")
    (root / ".git" / "hooks").mkdir(parents=True)
    (root / ".git" / "config").write_bytes(SECRET)
    (root / "link-file").symlink_to(outside / "secret")
    (root / "link-up").symlink_to("..")
    (root / "link-dir").symlink_to(outside / "inner")
    (root / "link-self").symlink_to("link-self")
    (root / "sub" / "link-in").symlink_to("file")
    os.mkfifo(root / "pipe")
    with socket.socket(socket.AF_UNIX) as unix:
        unix.bind(str(root / "socket"))
    return root


NAMES = [
    "..", ".", "", "sub", "deep", "file", "secret", "inner", "root", "link-file", "link-up",
    "link-dir", "link-self", "link-in", ".git", ".GIT", "config", "pipe", "socket", "~", "etc",
    "passwd", "..\\..", "%2e%2e", "\x00", "…", "．．",
]  # fmt: skip
paths = st.lists(st.sampled_from(NAMES) | st.text(max_size=3), max_size=6).map("/".join) | st.text()


def assert_inside(root, fd):
    real = os.readlink(f"/proc/self/fd/{fd}")
    assert os.path.commonpath([real, root.resolve()]) == str(root.resolve())
    assert ".git" not in real.split("/")


@given(path=paths)
def test_S1_D_no_path_reads_outside(place, path):
    workdir = Workdir(place)
    with suppress(ToolFailed):
        assert workdir.read(path, 1_000) in (None, b"inside")
    with suppress(ToolFailed), workdir.any(path) as (fd, _):
        assert_inside(place, fd)
    with suppress(ToolFailed), workdir.directory(path) as fd:
        assert_inside(place, fd)


@given(path=paths)
def test_S1_D_no_path_writes_outside(tmp_path_factory, place, path):
    root = tmp_path_factory.mktemp("write") / "root"
    (root / "sub").mkdir(parents=True)
    (root / "sub" / "file").write_bytes(b"inside")
    (root / "link-up").symlink_to("..")
    (root / "link-dir").symlink_to(place)
    (root / "link-file").symlink_to(place.parent / "new-secret")
    with suppress(ToolFailed):
        Workdir(root).replace(path, b"written", None)
    assert os.listdir(root.parent) == ["root"]
    assert sorted(os.listdir(place.parent)) == ["inner", "root", "secret"]
    assert not (root / ".git").exists()


@pytest.mark.parametrize(
    ("path", "error"),
    [
        ("/etc/passwd", "must be relative"),
        ("~/x", "must be relative"),
        ("../secret", "must not contain '..'"),
        ("sub/../../secret", "must not contain '..'"),
        ("link-file", "is a symbolic link to /.*; links are not followed"),
        ("link-dir/secret", "link-dir is a symbolic link"),
        ("link-up/secret", "link-up is a symbolic link to \\.\\.;"),
        ("link-self", "symbolic link"),
        ("sub/link-in", "symbolic link to file"),
        (".git/config", "belongs to git"),
        ("sub/.Git/config", "belongs to git"),
        ("pipe", "not a regular file"),
        ("socket", "No such device|not a regular file"),
        ("sub", "is a directory"),
        (".", "is a directory"),
        ("", "is a directory"),
        ("sub/file/x", "Not a directory"),
        ("a\0b", "characters that no path has"),
        ("\ud800", "characters that no path has"),
        ("x" * 2_000, "too long"),
        ("x" * 300, "File name too long"),
    ],
)
def test_a_rejected_path_is_explained(place, path, error):
    with pytest.raises(ToolFailed, match=error):
        Workdir(place).read(path, 1_000)


def test_a_missing_file_is_none_and_a_large_one_is_rejected(place):
    assert Workdir(place).read("sub/missing", 10) is None
    assert Workdir(place).read("missing/too", 10) is None
    assert Workdir(place).read("sub/./file", 10) == b"inside"
    with pytest.raises(ToolFailed, match="larger than 5 bytes"):
        Workdir(place).read("sub/file", 5)


def test_the_directory_itself_may_be_a_link_and_must_exist(place, tmp_path):
    (tmp_path / "here").symlink_to(place)
    assert Workdir(tmp_path / "here").read("sub/file", 10) == b"inside"
    for touch in (Workdir(tmp_path / "missing").directory, Workdir(tmp_path / "missing").file):
        with pytest.raises(ToolFailed, match="there is no"), touch("x"):
            pass
    with pytest.raises(ToolFailed, match="no working directory"):
        Workdir(None)


def test_S1_D_a_link_created_during_the_walk_is_not_followed(tmp_path):
    """While a tool reads a directory, the test replaces the directory by a link to the secret's
    directory and back, as fast as possible."""
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret" / "file").write_bytes(SECRET)
    root = tmp_path / "root"
    (root / "real").mkdir(parents=True)
    (root / "real" / "file").write_bytes(b"inside")
    (root / "link").symlink_to(tmp_path / "secret")
    ended = threading.Event()

    def swap():
        deadline = monotonic() + PATIENCE_S
        while not ended.is_set() and monotonic() < deadline:
            os.rename(root / "real", root / "door")
            os.rename(root / "door", root / "real")
            os.rename(root / "link", root / "door")
            os.rename(root / "door", root / "link")

    swapper = threading.Thread(target=swap)
    swapper.start()
    contents = set()
    try:
        for _ in range(2_000):
            try:
                contents.add(Workdir(root).read("door/file", 100))
            except ToolFailed:
                continue
    finally:
        ended.set()
        joined(swapper)
    assert SECRET not in contents


def test_a_file_is_replaced_atomically_and_keeps_its_mode(tmp_path):
    (tmp_path / "run.sh").write_bytes(b"old")
    (tmp_path / "run.sh").chmod(0o751)
    (tmp_path / "hard").hardlink_to(tmp_path / "run.sh")
    Workdir(tmp_path).replace("run.sh", b"new", b"old")
    assert (tmp_path / "run.sh").read_bytes() == b"new"
    assert (tmp_path / "run.sh").stat().st_mode & 0o777 == 0o751
    assert (tmp_path / "hard").read_bytes() == b"old", "not written in place"
    assert sorted(os.listdir(tmp_path)) == ["hard", "run.sh"]


def test_a_changed_file_is_not_overwritten(tmp_path):
    workdir = Workdir(tmp_path)
    (tmp_path / "a").write_bytes(b"theirs")
    for expected in (b"ours", None, b"theirs and more"):
        with pytest.raises(ToolFailed, match="changed by somebody else"):
            workdir.replace("a", b"new", expected)
    with pytest.raises(ToolFailed, match="changed by somebody else"):
        workdir.replace("gone", b"new", b"old")
    assert (tmp_path / "a").read_bytes() == b"theirs" and os.listdir(tmp_path) == ["a"]


def test_a_full_disk_keeps_the_old_content(tmp_path, monkeypatch):
    (tmp_path / "a").write_bytes(b"old")

    def full(fd):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ToolFailed, match="No space left"):
        Workdir(tmp_path).replace("a", b"new", b"old")
    assert (tmp_path / "a").read_bytes() == b"old" and os.listdir(tmp_path) == ["a"]


def test_no_descriptor_is_left_open(place):
    before = len(os.listdir("/proc/self/fd"))
    for path in ("sub/file", "link-up/x", "missing/x", "pipe", "sub", ".git/x"):
        for _ in range(3):
            with suppress(ToolFailed):
                Workdir(place).read(path, 100)
    assert len(os.listdir("/proc/self/fd")) == before

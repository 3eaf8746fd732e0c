"""Files that ctx writes: no link is followed, the content is complete and private, and errors say what to
do.
"""

import os
import stat
import threading
from pathlib import Path

import pytest

from ctx import files

SECRET = b"-----BEGIN KEY-----\n"
WRITE = os.O_RDWR | os.O_CREAT | os.O_TRUNC


def victim(tmp_path: Path) -> Path:
    path = tmp_path / "id_rsa"
    path.write_bytes(SECRET)
    path.chmod(0o640)
    return path


def untouched(path: Path) -> bool:
    return path.read_bytes() == SECRET and stat.S_IMODE(path.stat().st_mode) == 0o640


def test_a_link_is_not_opened_and_what_it_leads_to_stays(tmp_path: Path) -> None:
    secret = victim(tmp_path)
    (tmp_path / "lock").symlink_to(secret)
    for beneath in (None, str(tmp_path)):
        with pytest.raises(OSError, match="`lock` is a link"):
            files.open_file(str(tmp_path / "lock"), WRITE, beneath=beneath)
        with pytest.raises(OSError, match="`lock` is a link"):
            files.read_file(str(tmp_path / "lock"), beneath=beneath)
    assert untouched(secret)


def test_a_folder_on_the_way_may_be_a_link_above_and_not_below(tmp_path: Path) -> None:
    (tmp_path / "disk" / "store" / "index").mkdir(parents=True)
    (tmp_path / "home").symlink_to(tmp_path / "disk")
    store = tmp_path / "home" / "store"
    os.close(files.open_file(str(store / "index" / "state"), WRITE, beneath=str(store)))
    (store / "vectors").symlink_to(store / "index")
    with pytest.raises(OSError, match="`vectors` is a link"):
        files.open_file(str(store / "vectors" / "state"), WRITE, beneath=str(store))
    with pytest.raises(OSError, match="`home` is a link"):
        files.check_folder(str(tmp_path / "home"), beneath=str(tmp_path / "home"))


def test_a_path_that_leads_out_is_refused(tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    with pytest.raises(OSError, match="leads out"):
        files.open_file(str(tmp_path / "store" / ".." / "x"), WRITE, beneath=str(tmp_path / "store"))


def test_a_pipe_and_a_folder_are_no_files_and_nobody_waits_for_them(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    for name in ("pipe", "folder"):
        for flags in (os.O_RDONLY, os.O_WRONLY, WRITE):
            with pytest.raises(OSError, match=f"`{name}` is not a file"):
                files.open_file(str(tmp_path / name), flags)
        with pytest.raises(OSError, match=f"`{name}` is not a file"):
            files.check_file(str(tmp_path / name), beneath=str(tmp_path))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_what_belongs_to_another_user_is_not_written(tmp_path: Path) -> None:
    path = tmp_path / "theirs"
    path.write_bytes(SECRET)
    os.chown(path, 65534, 65534)
    with pytest.raises(OSError, match=r"another user \(uid 65534\).*chown"):
        files.open_file(str(path), WRITE)
    os.chown(tmp_path, 65534, 65534)
    with pytest.raises(OSError, match="another user"):
        files.make_folder(str(tmp_path / "below"), beneath=str(tmp_path))
    assert path.read_bytes() == SECRET


def test_a_file_that_others_could_read_is_closed_to_them_before_it_is_written(tmp_path: Path) -> None:
    path = tmp_path / "old"
    path.write_bytes(b"old")
    path.chmod(0o644)
    os.close(files.open_file(str(path), os.O_RDONLY))
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    os.close(files.open_file(str(path), WRITE))
    assert (stat.S_IMODE(path.stat().st_mode), path.read_bytes()) == (0o600, b"")


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o777])
def test_what_replaces_a_file_has_its_mode_under_any_umask(tmp_path: Path, umask: int) -> None:
    path = tmp_path / "keys.json"
    before = os.umask(umask)
    try:
        files.replace(str(path), b"1")
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        files.replace(str(path), b"2", mode=0o644)
        assert stat.S_IMODE(path.stat().st_mode) == 0o644
    finally:
        os.umask(before)
    assert path.read_bytes() == b"2"


def test_a_replacement_replaces_links_and_follows_none(tmp_path: Path) -> None:
    secret = victim(tmp_path)
    (tmp_path / "out").symlink_to(secret)
    (tmp_path / f"out.partial-{os.getpid()}").symlink_to(secret)
    files.replace(str(tmp_path / "out"), b"new")
    assert untouched(secret)
    assert (tmp_path / "out").read_bytes() == b"new"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["id_rsa", "out"]


def test_a_replacement_deletes_old_partial_files_of_the_name(tmp_path: Path) -> None:
    for name in ("out.partial-1", "outer.partial-1", "out.partial-x"):
        (tmp_path / name).write_bytes(b"half")
        os.utime(tmp_path / name, (1, 1))
    (tmp_path / "out.partial-2").write_bytes(b"half, and still being written")
    files.replace(str(tmp_path / "out"), b"new")
    assert {path.name for path in tmp_path.iterdir()} == {
        "out",
        "out.partial-2",
        "outer.partial-1",
        "out.partial-x",
    }


def test_a_replacement_that_fails_leaves_the_file_as_it_was_and_nothing_beside_it(tmp_path: Path) -> None:
    (tmp_path / "out").write_bytes(b"old")

    def fail() -> None:
        with files.replacement(str(tmp_path / "out")) as descriptor:
            os.write(descriptor, b"new")
            raise ValueError("half")

    with pytest.raises(ValueError, match="half"):
        fail()
    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [("out", b"old")]


def test_a_folder_or_a_device_is_not_replaced(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path, words in ((tmp_path, "folder"), (tmp_path / "pipe", "device or a pipe")):
        with pytest.raises(OSError, match=words):
            files.replace(str(path), b"x")
    with pytest.raises(OSError, match="folder"):
        files.replace(f"{tmp_path}/", b"x")
    assert [path.name for path in tmp_path.iterdir()] == ["pipe"]


def test_two_who_change_a_file_do_so_one_after_the_other(tmp_path: Path) -> None:
    path = str(tmp_path / "count")
    files.replace(path, b"0")

    def add() -> None:
        for _ in range(20):
            with files.locked(path):
                files.replace(path, str(int(files.read_file(path)) + 1).encode())

    threads = [threading.Thread(target=add) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert files.read_file(path) == b"80"


@pytest.mark.parametrize("state", ["", "state", "./state"])
def test_the_state_folder_is_never_relative(state: str) -> None:
    environ = {"HOME": "/home/me", "XDG_STATE_HOME": state}
    assert files.state_folder(environ) == "/home/me/.local/state/ctx"

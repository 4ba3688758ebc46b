"""Archives that would like to write elsewhere."""

from __future__ import annotations

import io
import stat
import tarfile
from pathlib import Path

import pytest

from spotd.node import workdir
from spotd.node.workdir import BadWorkdir


def _archive(path: Path, *members: tuple[tarfile.TarInfo, bytes]) -> str:
    with tarfile.open(path, "w:gz") as archive:
        for member, content in members:
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return str(path)


def _member(name: str, kind: bytes = tarfile.REGTYPE, link: str = "", mode: int = 0o644) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.type, member.linkname, member.mode = kind, link, mode
    return member


def test_files_directories_and_links_arrive(tmp_path: Path) -> None:
    """Modes and inner links are kept, set-uid is not; what an earlier try left is gone."""
    (tmp_path / "work").mkdir()
    (tmp_path / "work/stale").touch()
    archive = _archive(
        tmp_path / "a.tar",
        (_member("./src", tarfile.DIRTYPE, mode=0o500), b""),
        (_member("src/train.py", mode=0o4755), b"print()"),
        (_member("latest", tarfile.SYMTYPE, "src/train.py"), b""),
        (_member("twin", tarfile.LNKTYPE, "src/train.py"), b""),
    )
    workdir.unpack(archive, str(tmp_path / "work"))

    assert sorted(path.name for path in (tmp_path / "work").iterdir()) == ["latest", "src", "twin"]
    assert (tmp_path / "work/latest").read_text() == (tmp_path / "work/twin").read_text() == "print()"
    assert stat.S_IMODE((tmp_path / "work/src/train.py").stat().st_mode) == 0o755


@pytest.mark.parametrize(
    "member",
    [
        _member("../evil"),
        _member("/evil"),
        _member("a/../../evil"),
        _member("link", tarfile.SYMTYPE, "../outside"),
        _member("link", tarfile.SYMTYPE, "/etc/passwd"),
        _member("twin", tarfile.LNKTYPE, "../outside"),
        _member("device", tarfile.CHRTYPE),
        _member("disk", tarfile.BLKTYPE),
        _member("pipe", tarfile.FIFOTYPE),
    ],
    ids=lambda member: f"{member.name}-{member.type.decode()}-{member.linkname}",
)
def test_what_leads_out_is_refused(tmp_path: Path, member: tarfile.TarInfo) -> None:
    """No path, link or device escapes, and nothing of such an archive is used."""
    archive = _archive(tmp_path / "a.tar", (_member("good"), b"x"), (member, b""))
    with pytest.raises(BadWorkdir):
        workdir.unpack(archive, str(tmp_path / "work"))

    assert not (tmp_path / "work").exists()
    assert not (tmp_path / "evil").exists()


def test_no_file_is_written_through_a_link(tmp_path: Path) -> None:
    """A link to a directory followed by a file below it: the file's directory wins, the link is refused."""
    (tmp_path / "victim").mkdir()
    archive = _archive(tmp_path / "a.tar", (_member("d", tarfile.SYMTYPE, "."), b""), (_member("d/x"), b"x"))
    with pytest.raises((BadWorkdir, OSError)):
        workdir.unpack(archive, str(tmp_path / "work"))

    assert list((tmp_path / "victim").iterdir()) == []


@pytest.mark.parametrize("content", [b"", b"no tar at all", b"\x1f\x8b broken"])
def test_a_broken_archive_is_refused(tmp_path: Path, content: bytes) -> None:
    """Whatever tarfile thinks of it, it is a BadWorkdir or an empty directory, never a crash of another kind."""
    (tmp_path / "a.tar").write_bytes(content)
    with pytest.raises(BadWorkdir):
        workdir.unpack(str(tmp_path / "a.tar"), str(tmp_path / "work"))

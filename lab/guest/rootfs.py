"""What the root of the guest holds: a selection of Debian packages and the files of this folder."""

from __future__ import annotations

import fnmatch
import importlib.util
import io
import marshal
import posixpath
import stat
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from lab.guest.modules import is_module, module_name, order_modules
from tools.cluster.image_archive import Entry
from tools.images.base import SUITE

PACKAGES: Final = (
    "busybox-static",
    "dropbear-bin",
    "libpython3.13-stdlib",
    "linux-image-cloud-amd64",
    "python3-yaml",
    "python3.13-minimal",
    "qemu-guest-agent",
    "syslinux",
    "syslinux-common",
)
"""Packages of the guest; libraries they need come with them."""

_HERE: Final = Path(__file__).parent
FILES: Final = _HERE / "files"
NOCLOUD: Final = _HERE / "nocloud"
_LIBRARIES: Final = (
    "atomic.so.1", "c.so.6", "cap.so.2", "crypt.so.1", "expat.so.1", "glib-2.0.so.0",
    "gmodule-2.0.so.0", "gmp.so.10", "m.so.6", "numa.so.1", "pcre2-8.so.0", "tomcrypt.so.1",
    "tommath.so.1", "udev.so.1", "uring.so.2", "z.so.1",
)  # fmt: skip
_PROGRAMS: Final = (
    "usr/bin/busybox",
    "usr/bin/dropbearkey",
    "usr/bin/python3.13",
    "usr/lib64/ld-linux-x86-64.so.2",
    "usr/sbin/dropbear",
    "usr/sbin/qemu-ga",
)
_BUSYBOX: Final = "/usr/bin/busybox"
_PYTHON: Final = "usr/lib/python3.13/"
_YAML: Final = "usr/lib/python3/dist-packages/"
_PYTHON_PACKAGES: Final = ("collections", "encodings", "importlib", "pathlib", "re", "yaml")
_DYNAMIC: Final = f"/{_PYTHON}lib-dynload"
"""Empty; Python takes it as the mark of its installation."""
_KERNEL: Final = "boot/vmlinuz-*"
_MODULES: Final = "usr/lib/modules/*/kernel/*"
_MODES: Final = {"inittab": 0o644}
_PLACES: Final = {
    "init": "/init",
    "inittab": "/etc/inittab",
    "shutdown": "/usr/sbin/shutdown",
}
"""Where files of the folder `files` go; all others go to /usr/lib/slipway."""
_TEXTS: Final = {
    "/etc/group": "root:x:0:\n",
    "/etc/passwd": "root:x:0:0:root:/root:/usr/bin/sh\n",
    "/etc/shells": "/usr/bin/sh\n/bin/sh\n/bin/bash\n",
    "/etc/nsswitch.conf": "passwd: files\nhosts: files dns\n",
    "/etc/os-release": f'ID=debian\nVERSION_CODENAME={SUITE}\nPRETTY_NAME="Slipway guest"\n',
}
_LINKS: Final = {
    "/bin": "usr/bin",
    "/lib": "usr/lib",
    "/lib64": "usr/lib64",
    "/var/run": "../run",
    "/sbin": "usr/sbin",
    "/usr/bin/bash": "sh",
    "/usr/bin/sh": "busybox",
    "/usr/sbin/init": "../bin/init",
}
_ACPI: Final = "#!/usr/bin/sh\nexec poweroff\n"


class Packages:
    """The packages that the guest installs, from an archive that mmdebstrap wrote.

    Attributes:
        kernel: The kernel image.
        entries: Files of the root.
    """

    def __init__(self, archive: Path) -> None:
        """Read the archive once."""
        self.kernel = b""
        self.entries: list[Entry] = []
        modules: dict[str, bytes] = {}
        with tarfile.open(archive) as tar:
            for member in tar:
                name = member.name.removeprefix("./")
                if fnmatch.fnmatchcase(name, _KERNEL):
                    self.kernel = _read(tar, member)
                elif fnmatch.fnmatchcase(name, _MODULES) and is_module(name):
                    modules[module_name(name)] = _read(tar, member)
                elif entry := _convert(tar, member, name):
                    self.entries.append(entry)
        self.entries += _place_modules(modules)

    @property
    def busybox(self) -> bytes:
        """Return busybox, which is static and serves the image as well."""
        found = next(entry.content for entry in self.entries if entry.name == _BUSYBOX)
        assert isinstance(found, bytes)
        return found


def list_own_entries() -> Iterator[Entry]:
    """Yield the files that are ours, with NoCloud as one archive that Python runs."""
    for path in sorted(FILES.iterdir()):
        place = _PLACES.get(path.name, f"/usr/lib/slipway/{path.name}")
        yield Entry(place, path.read_bytes(), mode=_MODES.get(path.name, 0o755))
    yield Entry("/usr/lib/slipway/nocloud.pyz", _pack_nocloud(), mode=0o644)
    yield Entry("/etc/acpi/PWRF/00000080", _ACPI.encode(), mode=0o755)
    yield Entry("/etc/shadow", b"root:*:20000:0:99999:7:::\n", mode=0o600)
    for name, text in _TEXTS.items():
        yield Entry(name, text.encode(), mode=0o644)
    for name, target in _LINKS.items():
        yield Entry(name, link=target)
    yield Entry("/root", mode=0o700)
    yield Entry("/tmp", mode=0o1777)
    for name in ("/dev", "/home", "/proc", "/run", "/state", "/sys", "/var", _DYNAMIC):
        yield Entry(name)


def is_kept(name: str) -> bool:
    """Return whether a file of the packages is copied to the guest unchanged."""
    if name in _PROGRAMS:
        return True
    folder, _, file = name.rpartition("/")
    return (
        folder == "usr/lib/x86_64-linux-gnu" and file.startswith("lib") and file[3:] in _LIBRARIES
    )


def is_python(name: str) -> bool:
    """Return whether a Python module of the packages is compiled for the guest."""
    for root in (_PYTHON, _YAML):
        if name.startswith(root) and name.endswith(".py"):
            top, _, rest = name.removeprefix(root).partition("/")
            return not rest or top in _PYTHON_PACKAGES
    return False


def compile_module(source: bytes, name: str) -> bytes:
    """Return a module as bytecode that Python takes without looking at its source."""
    code = compile(source, f"/{name}", "exec", dont_inherit=True, optimize=0)
    return importlib.util.MAGIC_NUMBER + bytes(12) + marshal.dumps(code)


def _convert(tar: tarfile.TarFile, member: tarfile.TarInfo, name: str) -> Entry | None:
    if member.isfile() and is_python(name):
        return Entry(f"/{name}c", compile_module(_read(tar, member), name), mode=0o644)
    if not is_kept(name):
        return None
    if member.issym():
        # The file itself under the name by which programs ask for it.
        target = tar.getmember("./" + posixpath.normpath(f"{name}/../{member.linkname}"))
        return Entry(f"/{name}", _read(tar, target), mode=0o755)
    return Entry(f"/{name}", _read(tar, member), mode=stat.S_IMODE(member.mode))


def _place_modules(packed: dict[str, bytes]) -> Iterator[Entry]:
    places = []
    for name, module in order_modules(packed):
        places.append(f"/usr/lib/modules/{name}.ko")
        yield Entry(places[-1], module, mode=0o644)
    yield Entry("/etc/modules", "".join(f"{place}\n" for place in places).encode(), mode=0o644)


def _pack_nocloud() -> bytes:
    output = io.BytesIO()
    sources = {
        "__main__.py": b"import sys\nsys.path.append('/usr/lib/python3/dist-packages')\n"
        b"from lab.guest.nocloud.apply import main\nmain()\n",
        "tools/__init__.py": b"",
        "lab/guest/__init__.py": b"",
    }
    for path in sorted(NOCLOUD.glob("*.py")):
        if not path.name.endswith("_test.py"):
            sources[f"lab/guest/nocloud/{path.name}"] = path.read_bytes()
    with zipfile.ZipFile(output, "w") as archive:
        for name, source in sources.items():
            compiled = name != "__main__.py"
            data = compile_module(source, name) if compiled else source
            archive.writestr(zipfile.ZipInfo(f"{name}c" if compiled else name), data)
    return output.getvalue()


def _read(tar: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    file = tar.extractfile(member)
    assert file is not None
    return file.read()

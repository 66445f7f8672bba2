"""Files that tests write and compare, and what a command says of them."""


def write_program(path, text):
    """Write a program that can be run; return its path."""
    path.write_text(text)
    path.chmod(0o755)
    return path


def write_files(folder, files):
    """Write bytes by name into files below a folder."""
    for name, body in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(body)


def truncate(path):
    """Leave out the end of a file."""
    path.write_bytes(path.read_bytes()[:-3000])


def contents(folder):
    """Return the bytes of all files below a folder by their names."""
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def read_errors(capsys, status, expected=1):
    """Return what a command has said on stderr that ended with this status."""
    assert status == expected
    return capsys.readouterr().err

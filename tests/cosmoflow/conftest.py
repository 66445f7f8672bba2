"""What the tests of commands in this folder share."""


def contents(folder):
    """Return the bytes of all files below a folder by their names."""
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def read_errors(capsys, status, expected=1):
    """Return what a command has said on stderr that ended with this status."""
    assert status == expected
    return capsys.readouterr().err

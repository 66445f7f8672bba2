"""Files that tests write."""


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

"""Programs of tests that stand in for tools."""


def write_program(path, text):
    """Write a program that can be run; return its path."""
    path.write_text(text)
    path.chmod(0o755)
    return path

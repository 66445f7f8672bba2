"""The errors that a user can fix. A command shows their text in one line, without a traceback."""


class UsageError(ValueError):
    """The arguments of a command are wrong; the message says which, and what was expected."""

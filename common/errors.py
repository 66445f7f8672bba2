"""The errors that a user can fix. A command shows their text in one line, without a traceback."""

from typing import Final

NEEDS_POSIX: Final = "needs Linux or macOS"
"""The end of the message about what Windows cannot do."""


class UsageError(ValueError):
    """The arguments of a command are wrong; the message says which, and what was expected."""


class ConfigError(UsageError):
    """A configuration is wrong; the message names the file or override, the key, and what is expected."""


class LaunchError(RuntimeError):
    """The ranks cannot be determined or connected; the message names the variables and says how to fix it."""

"""The one exception that means "the input is wrong", so that callers can tell it from a defect."""


class InputError(ValueError):
    """Raised at a boundary when something the user gave cannot be used.

    The message is one line: it shows the offending value and says how to mend it. The command line
    prints it without a traceback and exits with code 2; every other exception is a defect and keeps
    its traceback.
    """

    def __init__(self, message: str) -> None:
        super().__init__(" ".join(message.splitlines()))

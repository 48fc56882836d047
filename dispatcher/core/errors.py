"""Errors that cross a port.

EntrepotError
|- Transient       the same call may succeed later; `retry_after_s` when the peer said so
|- Conflict        the object changed under us: read again and decide again, never send again
|- Refused         the peer understood and said no: a person must change something
|- Fenced          another leader has taken over: nothing more may be written in this term
'- Fatal           the process must stop: an invariant is broken or a precondition does not hold
"""


class EntrepotError(Exception):
    """Base of every error that Entrepot raises on purpose."""


class Transient(EntrepotError):
    """The same call may succeed later."""

    def __init__(self, message: str, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class Conflict(EntrepotError):
    """The object is newer than what the caller decided on."""


class Refused(EntrepotError):
    """The peer refused the call; repeating it unchanged cannot help."""


class Fenced(EntrepotError):
    """A later term has begun in the store: this process leads no longer, whatever it believes."""


class Fatal(EntrepotError):
    """The daemon must stop rather than go on; `fix` tells the operator what to change."""

    def __init__(self, message: str, fix: str = "") -> None:
        super().__init__(message)
        self.fix = fix

from eventlog.errors import CrashworthyError


class RequestMismatchError(CrashworthyError):
    """A key was asked for with another request than it stands for."""

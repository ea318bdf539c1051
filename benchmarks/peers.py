"""Other libraries that keep events or steps in SQLite, doing the nearest thing to one append. One that is not installed is named."""

from collections.abc import Callable

Work = Callable[[], object]


def open_eventsourcing(directory: str, text: str) -> tuple[Work, str]:
    """eventsourcing: an aggregate with one new event is saved."""
    from eventsourcing.application import Application
    from eventsourcing.domain import Aggregate, event

    class Session(Aggregate):
        @event("Opened")
        def __init__(self) -> None:
            self.text = ""

        @event("Noted")
        def note(self, text: str) -> None:
            self.text = text

    application = Application(env={"PERSISTENCE_MODULE": "eventsourcing.sqlite", "SQLITE_DBNAME": f"{directory}/eventsourcing.sqlite"})
    session = Session()
    application.save(session)

    def save() -> None:
        session.note(text)
        application.save(session)

    return save, "WAL, SQLite's default synchronous"


def open_dbos(directory: str, text: str) -> tuple[Work, str]:
    """DBOS: a workflow of one step (the workflow's own two records are part of it); the step's result is recorded."""
    from dbos import DBOS

    DBOS(
        config={
            "name": "bench",
            "system_database_url": f"sqlite:///{directory}/dbos.sqlite",
            "log_level": "ERROR",
            "run_admin_server": False,
        }
    )

    @DBOS.step()
    def step() -> str:
        return text

    @DBOS.workflow()
    def workflow() -> str:
        return step()

    DBOS.launch()
    return workflow, "rollback journal, as it sets it"


PEERS: dict[str, Callable[[str, str], tuple[Work, str]]] = {
    "eventsourcing: save of one event": open_eventsourcing,
    "DBOS: workflow of one step": open_dbos,
}


def open_peers(directory: str, text: str) -> tuple[dict[str, Work], dict[str, str]]:
    """What can be measured, and a word about each peer, the missing ones too."""
    works, words = {}, {}
    for name, opening in PEERS.items():
        try:
            works[name], words[name] = opening(directory, text)
        except ImportError as error:
            words[name] = f"unavailable: {error}; `make bench-log` installs it"
    return works, words

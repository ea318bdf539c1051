"""The standard workload as one DBOS workflow over SQLite: each step is a DBOS step, and a start recovers what was pending."""

import os

from dbos import DBOS, SetWorkflowID
from workload import STEPS, acknowledge, do_step

DBOS(
    config={
        "name": "workload",
        "system_database_url": f"sqlite:///{os.environ['CHAOS_STATE']}/dbos.sqlite",
        "log_level": "ERROR",
        "run_admin_server": False,
    }
)


@DBOS.step()
def run_step(number: int) -> None:
    do_step(number)


@DBOS.workflow()
def workload() -> None:
    for number in range(1, STEPS + 1):
        run_step(number)
        acknowledge(number)


if __name__ == "__main__":
    DBOS.launch()
    with SetWorkflowID("workload"):
        DBOS.start_workflow(workload).get_result()
    DBOS.destroy()

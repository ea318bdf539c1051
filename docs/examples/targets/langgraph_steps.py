"""The standard workload as a LangGraph graph with its SQLite checkpointer: each step is a node. `langgraph_steps.py DURABILITY`."""

import os
import sys
from typing import TypedDict

from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import END, START, StateGraph
from workload import STEPS, acknowledge, do_step


class State(TypedDict):
    number: int


def run_step(state: State) -> State:
    do_step(state["number"] + 1)
    return {"number": state["number"] + 1}


def choose(state: State) -> str:
    return "run_step" if state["number"] < STEPS else END


def main(durability: str) -> None:
    graph = StateGraph(State)
    graph.add_node("run_step", run_step)
    graph.add_edge(START, "run_step")
    graph.add_conditional_edges("run_step", choose, ["run_step", END])
    config = {"configurable": {"thread_id": "workload"}, "recursion_limit": 4 * STEPS + 10}
    with SqliteSaver.from_conn_string(f"{os.environ['CHAOS_STATE']}/langgraph.sqlite") as saver:
        compiled = graph.compile(checkpointer=saver)
        # A thread that has a checkpoint goes on from it: without an input, as its documentation says. Whether it is done is read from the
        # state itself: `next` is empty too where a node's writes stand in the log of writes and its checkpoint was not written.
        known = compiled.get_state(config).values
        given = None if known else {"number": 0}
        if known and known["number"] >= STEPS:
            return
        for update in compiled.stream(given, config, stream_mode="updates", durability=durability):
            acknowledge(update["run_step"]["number"])


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "async")

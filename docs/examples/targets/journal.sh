#!/bin/sh
# A shell script that crash-tests itself: it does the steps of the standard workload, and keeps a journal of its own of those that are done.
# What it promises: a step in the journal is not done again. A step that was cut is done again from its beginning, on top of what it left.
set -eu
journal="$CHAOS_STATE/journal"
touch "$journal"
number=1
while [ "$number" -le "$CHAOS_WORKLOAD" ]; do
    if ! grep -qx "$number" "$journal"; then
        "$CHAOS_ANNOUNCE" "$number.begin"
        echo "did $number" >> "$CHAOS_OUTSIDE/witness"
        "$CHAOS_ANNOUNCE" "$number.witnessed"
        echo "$number" >> "$CHAOS_WORK/left"
        "$CHAOS_ANNOUNCE" "$number.half"
        echo "$number" >> "$CHAOS_WORK/right"
        "$CHAOS_ANNOUNCE" "$number.done"
        echo "$number" >> "$journal"
        "$CHAOS_ANNOUNCE" "$number.recorded"
        echo "ack $number" >> "$CHAOS_OUTSIDE/witness"
        "$CHAOS_ANNOUNCE" "$number.acknowledged"
    fi
    number=$((number + 1))
done

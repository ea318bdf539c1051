"""The conformance suite of a store, as a pytest plugin (eventlog/README, "Another store").

    python -m pytest --pyargs eventlog.conformance --eventlog-store mypackage.store:make
"""

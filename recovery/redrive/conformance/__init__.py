"""The rules of the redriver, each as a test in a made-up world: no process, no file, no waiting.

    python -m pytest -p recovery.redrive.conformance.plugin --pyargs recovery.redrive.conformance
"""

"""What a session promises a program that holds it, and a fork its parent, each as a test with real processes.

    python -m pytest -p recovery.conformance.plugin --pyargs recovery.conformance
"""

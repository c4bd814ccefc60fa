"""Stage: retrieves evidence for a file of questions. Run as `python -m inference --config ... key=value`."""

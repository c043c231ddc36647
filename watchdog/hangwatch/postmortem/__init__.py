"""What `hangwatch diagnose` reads: bundles, dumps and logs of a job that has ended, as a capture."""

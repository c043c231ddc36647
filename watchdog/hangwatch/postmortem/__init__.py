"""What `hangwatch diagnose` reads, as a capture: bundles, dumps and logs of a job that has ended."""

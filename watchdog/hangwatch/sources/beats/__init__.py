"""The beats of probed ranks: files written by the probe twice a second."""

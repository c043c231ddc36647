"""The bundle of an incident on disk. May import the model and `outputs.html`."""

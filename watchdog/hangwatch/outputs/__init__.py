"""Rendering, storing and sending of incidents. May import the model and pure analysis; never touches a live process."""

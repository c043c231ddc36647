"""Who is told: plain values rendered and stored. May import the model and pure analysis; never looks at a live process."""

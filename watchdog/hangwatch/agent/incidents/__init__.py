"""The life of an incident: recorded, published, adopted, reopened, acted on, and in time removed."""

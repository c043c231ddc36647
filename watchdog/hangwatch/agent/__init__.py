"""When things happen: the tick that ties sources, diagnosis and outputs together, and the life cycle of an incident."""

"""One job under watch: what is suspected, captured and diagnosed, tick by tick."""

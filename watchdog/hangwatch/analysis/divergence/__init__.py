"""Where and how the call paths of the ranks diverge: branches, loops, iterations, call sites. Pure."""

#include "switches.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {

[[noreturn]] void refuse(const char* name, const char* value) {
  fprintf(stderr, "simulated device: %s=%s is not understood\n", name, value);
  abort();
}

// Which of two or three words a variable holds; the first where it is not set.
int choose(const char* name, const char* a, const char* b, const char* c = nullptr) {
  const char* value = getenv(name);
  if (!value || !strcmp(value, a)) return 0;
  if (!strcmp(value, b)) return 1;
  if (c && !strcmp(value, c)) return 2;
  refuse(name, value);
}

Fault read_fault(const char* name, int own_rank) {
  const char* value = getenv(name);
  if (!value) return {};
  int rank = 0;
  long long after = 0;
  char rest = 0;
  if (sscanf(value, "%d:%lld%c", &rank, &after, &rest) != 2 || after < 0) refuse(name, value);
  return rank == own_rank ? Fault{after} : Fault{};
}

SlowLink read_link(const char* name) {
  const char* value = getenv(name);
  if (!value) return {};
  SlowLink link;
  long long rate = 0;
  char rest = 0;
  if (sscanf(value, "%d-%d:%lld%c", &link.first, &link.second, &rate, &rest) != 3 || rate <= 0) refuse(name, value);
  link.bytes_per_s = rate;
  return link;
}

Switches read() {
  Switches found;
  found.spins = choose("SIMULATED_SYNC", "spin", "block") == 0;
  found.connect = static_cast<Connect>(choose("SIMULATED_CONNECT", "init", "first", "stream"));
  found.passes_garbage = choose("SIMULATED_MISMATCH", "hang", "garbage") == 1;
  found.reports_death = choose("SIMULATED_PEER_DEATH", "hang", "error") == 1;
  found.traces = choose("SIMULATED_TRACE", "off", "kernels") == 1;
  if (const char* devices = getenv("SIMULATED_DEVICES")) found.devices = atoi(devices);
  if (const char* rank = getenv("RANK")) found.rank = atoi(rank);
  found.stops = read_fault("SIMULATED_STOPS", found.rank);
  found.lost = read_fault("SIMULATED_LOST", found.rank);
  found.blocks = read_fault("SIMULATED_BLOCKS", found.rank);
  found.slow = read_link("SIMULATED_SLOW_LINK");
  return found;
}

}  // namespace

const Switches& switches() {
  static const Switches found = read();
  return found;
}

// A communicator as one process holds it. Never freed: tasks on streams may hold it longer than the program does.
#pragma once
#include <unistd.h>

#include <atomic>
#include <vector>

#include "segment.h"

struct Communicator {
  Segment* segment = nullptr;
  int rank = 0, size = 0, device = 0;
  bool blocking = true;
  int own_descriptor = -1;  // of the file, where this member made it
  std::atomic<bool> aborted{false};
  std::atomic<int> error{kOk};
  // Operations run in the order of the calls, whatever streams they are on.
  uint64_t tickets = 0;
  std::atomic<uint64_t> turn{0};
  uint64_t collectives = 0, splits = 0;
  std::vector<uint64_t> sent, received;
  bool connected = false;
  Member& self() { return segment->members[rank]; }
};

// Wait as NCCL's host code does (src/group.cc of 2.29: `usleep(1)` in a loop). False: the communicator was aborted.
template <typename Condition>
bool wait_as_host(Communicator* c, Condition done) {
  while (!done()) {
    if (c->aborted || simulated_is_lost()) return false;
    usleep(1);
  }
  return true;
}

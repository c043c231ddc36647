// What the members of a communicator share: a memory file that its first member made and the others open through /proc, so that
// nothing is left behind however they end. Bytes of tensors do not pass through it: each member reads them out of the others.
#pragma once
#include <atomic>

#include "../device.h"
#include "nccl.h"

// A collective as its members have to agree on it, and where this member's bytes are.
struct Call {
  int kind, type, reduction, root;
  uint64_t count;
  const void* input;
  bool agrees_with(const Call& other) const {
    return kind == other.kind && type == other.type && reduction == other.reduction && root == other.root && count == other.count;
  }
};

// Counters only grow: "has posted n" stays true.
struct Member {
  std::atomic<int> here;  // 1 when the rest of its identity can be read
  int pid, world_rank, bell_descriptor;
  uint64_t start_time;  // of the process, in clock ticks since boot: pids are used again
  std::atomic<uint64_t> posted, read;  // collectives
  Call call;
  std::atomic<int> connected;  // it has come to its first collective
  std::atomic<uint64_t> splits_posted, splits_made, splits_read;
  int color, key, child_descriptor;
};

// From one member to another.
struct Channel {
  std::atomic<int> sender_came, receiver_came;
  std::atomic<uint64_t> sent, taken;
  const void* input;
  uint64_t bytes;
};

struct Segment {
  int size;
  Member* members;
  Channel* channels;
  Bell** bells;  // of this process: the others' bells, mapped at need
  Channel& channel(int from, int to) { return channels[from * size + to]; }
};

// A new file for a communicator of yet unknown size; its descriptor.
int make_segment();
// The file that another process holds open, mapped for a number of members; null if it is gone.
Segment* open_segment(int pid, int descriptor, int size);
void announce(Segment* segment, int rank);
bool all_here(Segment* segment);
// Wake the devices of the members.
void ring_all(Segment* segment);
bool is_alive(const Member& member);
// Copy bytes out of a member's memory; false if it is gone.
bool read_from(const Member& member, const void* from, void* to, size_t bytes);

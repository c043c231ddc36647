// Communicators: their start, split, abort and end.
#include "communicator.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <tuple>

#include "../switches.h"

extern "C" int cudaGetDevice(int*);

namespace {

constexpr int kUndefined = -2147483647 - 1;  // what ncclConfig_t holds where nothing was set
constexpr int kNoColor = -1;

// The content of a unique id.
struct Address {
  char magic[16];
  int pid, descriptor;
  int64_t at_ns;
};
constexpr char kMagic[16] = "simulated-id";

Communicator* join(int pid, int descriptor, int size, int rank, bool blocking) {
  Segment* segment = open_segment(pid, descriptor, size);
  if (!segment) return nullptr;
  auto c = new Communicator;
  c->segment = segment;
  c->rank = rank;
  c->size = size;
  c->blocking = blocking;
  c->sent.resize(static_cast<size_t>(size));
  c->received.resize(static_cast<size_t>(size));
  cudaGetDevice(&c->device);
  if (pid == getpid()) c->own_descriptor = descriptor;
  announce(segment, rank);
  return c;
}

int initialise(Communicator** made, int size, const UniqueId& id, int rank, const Config* config) {
  if (simulated_is_lost()) return kCudaError;
  Address address;
  memcpy(&address, id.bytes, sizeof address);
  if (memcmp(address.magic, kMagic, sizeof kMagic) || rank < 0 || rank >= size) return kInvalidArgument;
  bool blocking = !config || config->blocking == kUndefined || config->blocking;
  Communicator* c = join(address.pid, address.descriptor, size, rank, blocking);
  if (!c) return kRemoteError;
  *made = c;
  if (!blocking) return kInProgress;
  if (switches().connect == Connect::kStream) return kOk;
  wait_as_host(c, [=] { return all_here(c->segment); });
  return kOk;
}

}  // namespace

API int ncclGetVersion(int* version) {
  *version = 22907;
  return kOk;
}

API int ncclGetUniqueId(UniqueId* id) {
  Address address{};
  memcpy(address.magic, kMagic, sizeof kMagic);
  address.pid = getpid();
  address.descriptor = make_segment();
  address.at_ns = now_ns();
  memset(id, 0, sizeof *id);
  memcpy(id->bytes, &address, sizeof address);
  return address.descriptor < 0 ? kInvalidUsage : kOk;
}

API int ncclCommInitRankConfig(Communicator** made, int size, UniqueId id, int rank, Config* config) {
  return initialise(made, size, id, rank, config);
}
API int ncclCommInitRank(Communicator** made, int size, UniqueId id, int rank) {
  return initialise(made, size, id, rank, nullptr);
}
API int ncclCommInitRankScalable(Communicator** made, int size, int rank, int, UniqueId* ids, Config* config) {
  return initialise(made, size, ids[0], rank, config);
}

// All members of the parent come to it, also those that get no communicator; it blocks the host until they have.
API int ncclCommSplit(Communicator* parent, int color, int key, Communicator** made, Config* config) {
  *made = nullptr;
  Segment* segment = parent->segment;
  uint64_t number = ++parent->splits;
  auto all = [=](std::atomic<uint64_t> Member::*count, uint64_t wanted) {
    return [=] {
      for (int rank = 0; rank < segment->size; rank++)
        if (segment->members[rank].*count < wanted) return false;
      return true;
    };
  };
  Member& self = parent->self();
  if (!wait_as_host(parent, all(&Member::splits_read, number - 1))) return kOk;
  self.color = color;
  self.key = key;
  self.splits_posted = number;
  if (!wait_as_host(parent, all(&Member::splits_posted, number))) return kOk;
  std::vector<std::tuple<int, int>> group;  // key, rank in the parent
  for (int rank = 0; rank < segment->size; rank++)
    if (segment->members[rank].color == color) group.emplace_back(segment->members[rank].key, rank);
  std::sort(group.begin(), group.end());
  Member& leader = segment->members[std::get<1>(group.front())];
  if (color != kNoColor && &leader == &self) self.child_descriptor = make_segment();
  self.splits_made = number;
  if (color != kNoColor) {
    if (!wait_as_host(parent, [&] { return leader.splits_made >= number; })) return kOk;
    auto own = std::find(group.begin(), group.end(), std::make_tuple(key, parent->rank));
    bool blocking = config && config->blocking != kUndefined ? config->blocking : parent->blocking;
    int size = static_cast<int>(group.size()), rank = static_cast<int>(own - group.begin());
    *made = join(leader.pid, leader.child_descriptor, size, rank, blocking);
  }
  self.splits_read = number;
  return *made && !(*made)->blocking ? kInProgress : kOk;
}

API int ncclCommAbort(Communicator* c) {
  c->aborted = true;
  simulated_advance();
  if (c->own_descriptor >= 0) close(c->own_descriptor);
  c->own_descriptor = -1;
  return kOk;
}

API int ncclCommFinalize(Communicator*) { return kOk; }

// Waits for what this member has launched.
API int ncclCommDestroy(Communicator* c) {
  wait_as_host(c, [=] { return c->turn == c->tickets; });
  return ncclCommAbort(c);
}

API int ncclCommGetAsyncError(Communicator* c, int* error) {
  if (switches().reports_death && !c->aborted && c->error == kOk) {
    for (int rank = 0; rank < c->size; rank++)
      if (!is_alive(c->segment->members[rank])) c->error = kRemoteError;
  }
  *error = simulated_is_lost() ? static_cast<int>(kCudaError) : c->error.load();
  if (*error == kOk && !c->blocking && !c->aborted && !all_here(c->segment)) *error = kInProgress;
  return kOk;
}

API int ncclCommCount(const Communicator* c, int* count) {
  *count = c->size;
  return kOk;
}
API int ncclCommUserRank(const Communicator* c, int* rank) {
  *rank = c->rank;
  return kOk;
}
API int ncclCommRegister(const Communicator*, void* buffer, size_t, void** handle) {
  *handle = buffer;
  return kOk;
}
API int ncclCommDeregister(const Communicator*, void*) { return kOk; }

API const char* ncclGetErrorString(int result) {
  switch (result) {
    case kOk: return "no error";
    case kCudaError: return "unhandled cuda error";
    case kInvalidArgument: return "invalid argument";
    case kInvalidUsage: return "invalid usage";
    case kRemoteError: return "remote process exited or there was a network error";
    case kInProgress: return "NCCL operation in progress";
    default: return "unknown result code";
  }
}
API const char* ncclGetLastError(const Communicator*) { return ""; }

// Collectives and point-to-point operations: called in groups, put on streams, run when all whom they need have come.
#include <algorithm>
#include <cstring>
#include <memory>

#include "../switches.h"
#include "communicator.h"
#include "reduce.h"

namespace {

enum Kind : int { kAllReduce, kReduce, kBroadcast, kAllGather, kReduceScatter, kAllToAll };

// One of the things that an operation does; an operation ends when all of its parts have ended.
struct Part {
  Communicator* c;
  explicit Part(Communicator* communicator) : c(communicator) {}
  virtual ~Part() = default;
  virtual bool advance() = 0;
  int64_t due = 0;

 protected:
  // Whether the bytes have had the time that they take over a slow link.
  bool has_passed(size_t bytes, bool is_slow) {
    if (!is_slow) return true;
    double took_s = static_cast<double>(bytes) / static_cast<double>(switches().slow.bytes_per_s);
    if (!due) due = now_ns() + static_cast<int64_t>(1e9 * took_s);
    return now_ns() >= due;
  }
};

bool is_end(const Member& member, int world_rank) { return member.world_rank == world_rank; }

struct Collective : Part {
  Call call;
  char* output;
  uint64_t number = 0;
  enum { kNew, kPosted, kRead } phase = kNew;
  std::vector<char> result;

  Collective(Communicator* communicator, Call what, void* out)
      : Part(communicator), call(what), output(static_cast<char*>(out)) {}

  template <typename Check>
  bool all(Check check) {
    for (int rank = 0; rank < c->size; rank++)
      if (!check(c->segment->members[rank])) return false;
    return true;
  }

  bool crosses_slow_link() {
    const SlowLink& slow = switches().slow;
    return slow.bytes_per_s && !all([&](Member& m) { return !is_end(m, slow.first); }) &&
           !all([&](Member& m) { return !is_end(m, slow.second); });
  }

  bool advance() override {
    if (phase == kNew) {
      number = ++c->collectives;
      c->self().call = call;
      c->self().posted = number;
      ring_all(c->segment);
      phase = kPosted;
    }
    if (phase == kPosted) {
      if (!all([&](Member& m) { return m.posted >= number; })) return false;
      bool matches = all([&](Member& m) { return m.call.agrees_with(call); });
      if (!matches && !switches().passes_garbage) return false;
      if (!has_passed(call.count * bytes_of(call.type), crosses_slow_link())) return false;
      if (matches && !compute()) return false;
      c->self().read = number;
      ring_all(c->segment);
      phase = kRead;
    }
    if (!all([&](Member& m) { return m.read >= number; })) return false;
    memcpy(output, result.data(), result.size());
    return true;
  }

  // What this member gets, as bytes of its own: others may still read its input, which may be its output.
  bool compute() {
    size_t bytes = call.count * bytes_of(call.type), own = static_cast<size_t>(c->rank);
    auto fetch = [&](int rank, size_t offset, char* to) {
      const Member& member = c->segment->members[rank];
      return read_from(member, static_cast<const char*>(member.call.input) + offset, to, bytes);
    };
    switch (call.kind) {
      case kBroadcast:
        result.resize(bytes);
        return fetch(call.root, 0, result.data());
      case kAllGather:
      case kAllToAll:
        result.resize(bytes * static_cast<size_t>(c->size));
        for (int rank = 0; rank < c->size; rank++) {
          size_t offset = call.kind == kAllToAll ? own * bytes : 0;
          if (!fetch(rank, offset, result.data() + static_cast<size_t>(rank) * bytes)) return false;
        }
        return true;
      case kReduce:
        if (c->rank != call.root) return true;
        [[fallthrough]];
      default: {
        size_t offset = call.kind == kReduceScatter ? own * bytes : 0;
        result.resize(bytes);
        std::vector<char> other(bytes);
        if (!fetch(0, offset, result.data())) return false;
        for (int rank = 1; rank < c->size; rank++) {
          if (!fetch(rank, offset, other.data())) return false;
          reduce_bytes(call.type, result.data(), other.data(), call.count, call.reduction);
        }
        if (call.reduction == kAverage) divide_bytes(call.type, result.data(), call.count, c->size);
        return true;
      }
    }
  }
};

struct Send : Part {
  int peer;
  const void* input;
  size_t bytes;
  uint64_t number = 0;
  bool posted = false;

  Send(Communicator* communicator, int to, const void* from, size_t length)
      : Part(communicator), peer(to), input(from), bytes(length) {}

  bool advance() override {
    Channel& channel = c->segment->channel(c->rank, peer);
    if (!number) number = ++c->sent[static_cast<size_t>(peer)];
    if (!posted) {
      if (channel.taken != number - 1) return false;
      channel.input = input;
      channel.bytes = bytes;
      channel.sent = number;
      posted = true;
      ring_all(c->segment);
    }
    return channel.taken >= number;
  }
};

struct Receive : Part {
  int peer;
  void* output;
  size_t bytes;
  uint64_t number = 0;

  Receive(Communicator* communicator, int from, void* to, size_t length)
      : Part(communicator), peer(from), output(to), bytes(length) {}

  bool advance() override {
    Channel& channel = c->segment->channel(peer, c->rank);
    const Member& sender = c->segment->members[peer];
    if (!number) number = ++c->received[static_cast<size_t>(peer)];
    if (channel.sent < number) return false;
    if (channel.bytes != bytes && !switches().passes_garbage) return false;
    const SlowLink& slow = switches().slow;
    bool is_slow = slow.bytes_per_s && ((is_end(sender, slow.first) && is_end(c->self(), slow.second)) ||
                                        (is_end(sender, slow.second) && is_end(c->self(), slow.first)));
    if (!has_passed(bytes, is_slow)) return false;
    if (!read_from(sender, channel.input, output, std::min<size_t>(bytes, channel.bytes))) return false;
    channel.taken = number;
    ring_all(c->segment);
    return true;
  }
};

struct Operation : Task {
  Communicator* c;
  Stream* stream;
  bool is_collective;
  uint64_t ticket = 0;
  std::vector<std::unique_ptr<Part>> parts;
  Operation(Communicator* communicator, Stream* where, bool collective)
      : c(communicator), stream(where), is_collective(collective) {}

  bool advance() override {
    if (c->aborted) return true;
    if (c->turn != ticket || !all_here(c->segment)) return false;
    parts.erase(std::remove_if(parts.begin(), parts.end(), [](auto& part) { return part->advance(); }), parts.end());
    if (!parts.empty()) return false;
    c->turn++;
    return true;
  }

  int64_t due_ns() const override {
    int64_t first = 0;
    for (auto& part : parts)
      if (part->due && (!first || part->due < first)) first = part->due;
    return first;
  }

  // Where the host has to meet the others first (NCCL_RUNTIME_CONNECT, on by default since 2.22): wait for them here.
  void connect() {
    if (switches().connect != Connect::kFirst || !c->blocking) return;
    if (is_collective) {
      if (c->connected) return;
      c->self().connected = 1;
      c->connected = wait_as_host(c, [&] {
        for (int rank = 0; rank < c->size; rank++)
          if (!c->segment->members[rank].connected) return false;
        return true;
      });
      return;
    }
    for (auto& part : parts) {
      if (auto send = dynamic_cast<Send*>(part.get())) c->segment->channel(c->rank, send->peer).sender_came = 1;
      if (auto receive = dynamic_cast<Receive*>(part.get())) c->segment->channel(receive->peer, c->rank).receiver_came = 1;
    }
    for (auto& part : parts) {
      if (auto send = dynamic_cast<Send*>(part.get()))
        wait_as_host(c, [&] { return c->segment->channel(c->rank, send->peer).receiver_came.load(); });
      if (auto receive = dynamic_cast<Receive*>(part.get()))
        wait_as_host(c, [&] { return c->segment->channel(receive->peer, c->rank).sender_came.load(); });
    }
  }
};

thread_local int depth = 0;
thread_local std::vector<std::unique_ptr<Operation>> collected;

// The faults that this rank's device is to have, before its operation of this number.
void have_faults() {
  static std::atomic<int64_t> launched{0};
  int64_t number = launched++;
  if (number == switches().stops.after) simulated_stop();
  if (number == switches().lost.after) simulated_lose();
  if (number == switches().blocks.after) simulated_block();
}

int launch_collected() {
  auto operations = std::move(collected);
  collected.clear();
  for (auto& operation : operations) {
    have_faults();
    if (simulated_is_lost()) return kCudaError;
    operation->connect();
    operation->ticket = operation->c->tickets++;
    Stream* stream = operation->stream;
    simulated_submit(stream, operation.release());
  }
  return kOk;
}

int add(Communicator* c, Stream* stream, bool is_collective, Part* part) {
  std::unique_ptr<Part> owned(part);
  if (simulated_is_lost()) return kCudaError;
  if (c->aborted) return kInvalidUsage;
  // Sends and receives of one group go together: none of them waits for another.
  Operation* into = nullptr;
  if (!is_collective)
    for (auto& operation : collected)
      if (operation->c == c && !operation->is_collective) into = operation.get();
  if (!into) {
    collected.push_back(std::make_unique<Operation>(c, stream, is_collective));
    into = collected.back().get();
  }
  into->parts.push_back(std::move(owned));
  return depth ? static_cast<int>(kOk) : launch_collected();
}

int add_collective(Communicator* c, Stream* stream, Call call, void* output) {
  return add(c, stream, true, new Collective(c, call, output));
}

}  // namespace

API int ncclGroupStart() {
  depth++;
  return kOk;
}
API int ncclGroupEnd() { return --depth ? static_cast<int>(kOk) : launch_collected(); }

API int ncclAllReduce(const void* in, void* out, size_t count, int type, int reduction, Communicator* c, Stream* stream) {
  return add_collective(c, stream, {kAllReduce, type, reduction, 0, count, in}, out);
}
API int ncclReduce(const void* in, void* out, size_t count, int type, int reduction, int root, Communicator* c, Stream* stream) {
  return add_collective(c, stream, {kReduce, type, reduction, root, count, in}, out);
}
API int ncclBroadcast(const void* in, void* out, size_t count, int type, int root, Communicator* c, Stream* stream) {
  return add_collective(c, stream, {kBroadcast, type, 0, root, count, in}, out);
}
API int ncclBcast(void* buffer, size_t count, int type, int root, Communicator* c, Stream* stream) {
  return ncclBroadcast(buffer, buffer, count, type, root, c, stream);
}
API int ncclAllGather(const void* in, void* out, size_t count, int type, Communicator* c, Stream* stream) {
  return add_collective(c, stream, {kAllGather, type, 0, 0, count, in}, out);
}
API int ncclReduceScatter(const void* in, void* out, size_t count, int type, int reduction, Communicator* c, Stream* stream) {
  return add_collective(c, stream, {kReduceScatter, type, reduction, 0, count, in}, out);
}
API int ncclAlltoAll(const void* in, void* out, size_t count, int type, Communicator* c, Stream* stream) {
  return add_collective(c, stream, {kAllToAll, type, 0, 0, count, in}, out);
}
API int ncclSend(const void* in, size_t count, int type, int peer, Communicator* c, Stream* stream) {
  return add(c, stream, false, new Send(c, peer, in, count * bytes_of(type)));
}
API int ncclRecv(void* out, size_t count, int type, int peer, Communicator* c, Stream* stream) {
  return add(c, stream, false, new Receive(c, peer, out, count * bytes_of(type)));
}

// A factor is not applied: gradients are garbage anyway.
API int ncclRedOpCreatePreMulSum(int* reduction, void*, int, int, Communicator*) {
  *reduction = kSum;
  return kOk;
}
API int ncclRedOpDestroy(int, Communicator*) { return kOk; }

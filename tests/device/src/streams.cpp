// Streams, events and the thread that runs them.
#include <fcntl.h>
#include <sys/mman.h>

#include <condition_variable>
#include <deque>
#include <mutex>
#include <set>
#include <thread>

#include "device.h"
#include "switches.h"

struct Stream {
  std::deque<std::unique_ptr<Task>> queue;
  std::atomic<uint64_t> submitted{0}, completed{0};
  bool busy = false;  // its head runs outside the lock
  int priority = 0;
};

namespace {

// A point in a stream.
struct Mark {
  std::atomic<bool> done{false};
  int64_t at_ns = 0;
};

}  // namespace

struct Event {
  std::shared_ptr<Mark> mark;  // none: never recorded, which counts as done
};

namespace {

// Never destroyed: threads use it until the process is gone.
struct Device {
  std::mutex lock;
  std::condition_variable progressed;
  Stream null_stream;
  std::set<Stream*> streams{&null_stream};
  std::atomic<bool> stopped{false}, lost{false};
  std::atomic<uint32_t> blocked{0};
  Bell* bell = nullptr;
  int bell_descriptor = -1;
};

Device& device() {
  static Device* one = new Device;
  return *one;
}

Stream* real(Stream* stream) {
  // 0, 1 and 2 are the default stream, in its three forms.
  return reinterpret_cast<uintptr_t>(stream) <= 2 ? &device().null_stream : stream;
}

// Run what can be run. Returns when to try again though nobody rings, 0 for never.
int64_t advance_all(std::unique_lock<std::mutex>& held, bool may_leave_lock) {
  Device& d = device();
  int64_t due = 0;
  if (d.stopped) return 0;
  for (bool moved = true; moved;) {
    moved = false;
    due = 0;
    for (Stream* stream : std::set<Stream*>(d.streams)) {
      if (!d.streams.count(stream)) continue;
      while (!stream->queue.empty() && !stream->busy && !d.stopped) {
        Task* task = stream->queue.front().get();
        if (task->outside_lock()) {
          if (!may_leave_lock) {
            ring(d.bell);
            break;
          }
          stream->busy = true;
          held.unlock();
          task->advance();
          held.lock();
          stream->busy = false;
        } else if (!task->advance()) {
          int64_t wanted = task->due_ns();
          if (wanted && (!due || wanted < due)) due = wanted;
          break;
        }
        stream->queue.pop_front();
        stream->completed++;
        moved = true;
      }
    }
    if (moved) d.progressed.notify_all();
  }
  return due;
}

void run_device() {
  Device& d = device();
  pthread_setname_np(pthread_self(), "simulated-dev");
  for (;;) {
    uint32_t rings = d.bell->rings.load();
    int64_t due;
    {
      std::unique_lock<std::mutex> held(d.lock);
      due = advance_all(held, true);
    }
    timespec until{due / 1000000000, due % 1000000000};
    syscall(SYS_futex, &d.bell->rings, FUTEX_WAIT_BITSET, rings, due ? &until : nullptr, nullptr, FUTEX_BITSET_MATCH_ANY);
  }
}

// Start the thread; under the lock.
void start() {
  Device& d = device();
  if (d.bell) return;
  d.bell_descriptor = memfd_create("simulated-bell", MFD_CLOEXEC);
  if (ftruncate(d.bell_descriptor, sizeof(Bell)) != 0) abort();
  void* page = mmap(nullptr, sizeof(Bell), PROT_READ | PROT_WRITE, MAP_SHARED, d.bell_descriptor, 0);
  if (page == MAP_FAILED) abort();
  d.bell = static_cast<Bell*>(page);
  std::thread(run_device).detach();
}

struct FunctionTask : Task {
  std::function<void()> run;
  bool outside;
  FunctionTask(std::function<void()> f, bool o) : run(std::move(f)), outside(o) {}
  bool advance() override {
    run();
    return true;
  }
  bool outside_lock() const override { return outside; }
};

struct MarkTask : Task {
  std::shared_ptr<Mark> mark;
  explicit MarkTask(std::shared_ptr<Mark> m) : mark(std::move(m)) {}
  bool advance() override {
    mark->at_ns = now_ns();
    mark->done = true;
    return true;
  }
};

struct WaitTask : Task {
  std::shared_ptr<Mark> mark;
  explicit WaitTask(std::shared_ptr<Mark> m) : mark(std::move(m)) {}
  bool advance() override { return mark->done; }
};

// Wait on the host until something is done, as CUDA does: by default at 100 % of a core.
template <typename Condition>
Error wait_on_host(Condition done) {
  Device& d = device();
  if (switches().spins) {
    while (!done() && !d.lost) __builtin_ia32_pause();
  } else {
    std::unique_lock<std::mutex> held(d.lock);
    d.progressed.wait(held, [&] { return done() || d.lost; });
  }
  return d.lost ? fail(kUnknown) : kSuccess;
}

}  // namespace

API void simulated_submit(Stream* stream, Task* task) {
  Device& d = device();
  std::unique_lock<std::mutex> held(d.lock);
  start();
  stream = real(stream);
  stream->queue.emplace_back(task);
  stream->submitted++;
  if (stream->queue.size() > 1) return;  // the thread comes to it
  advance_all(held, false);
  if (!stream->queue.empty()) ring(d.bell);
}

API Bell* simulated_bell(int* descriptor) {
  std::unique_lock<std::mutex> held(device().lock);
  start();
  *descriptor = device().bell_descriptor;
  return device().bell;
}

API void simulated_advance() {
  Bell* bell;
  {
    std::unique_lock<std::mutex> held(device().lock);
    bell = device().bell;
  }
  if (bell) ring(bell);
}

API void simulated_stop() { device().stopped = true; }

API void simulated_lose() {
  std::unique_lock<std::mutex> held(device().lock);
  device().stopped = device().lost = true;
  device().progressed.notify_all();
}

API void simulated_block() { device().blocked = 1; }

API bool simulated_is_lost() { return device().lost; }

Error enter() {
  auto& blocked = device().blocked;
  while (blocked) syscall(SYS_futex, &blocked, FUTEX_WAIT, 1, nullptr, nullptr, 0);
  return simulated_is_lost() ? fail(kUnknown) : kSuccess;
}

void submit(Stream* stream, std::function<void()> run) { simulated_submit(stream, new FunctionTask(std::move(run), false)); }

Error wait_for_stream(Stream* stream) {
  stream = real(stream);
  uint64_t until = stream->submitted;
  return wait_on_host([=] { return stream->completed >= until; });
}

// Streams.

API int cudaStreamCreateWithPriority(Stream** stream, unsigned, int priority) {
  if (Error e = enter()) return e;
  std::unique_lock<std::mutex> held(device().lock);
  *stream = new Stream;
  (*stream)->priority = priority;
  device().streams.insert(*stream);
  return kSuccess;
}

API int cudaStreamCreate(Stream** stream) { return cudaStreamCreateWithPriority(stream, 0, 0); }

API int cudaStreamDestroy(Stream* stream) {
  std::unique_lock<std::mutex> held(device().lock);
  // What is queued goes on, as with CUDA; only an idle one is freed.
  if (stream->queue.empty() && !stream->busy && device().streams.erase(stream)) delete stream;
  return kSuccess;
}

API int cudaStreamGetPriority(Stream* stream, int* priority) {
  *priority = real(stream)->priority;
  return kSuccess;
}

API int cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  *least = 0;
  *greatest = -5;
  return kSuccess;
}

API int cudaStreamQuery(Stream* stream) {
  if (Error e = enter()) return e;
  stream = real(stream);
  return stream->completed == stream->submitted ? kSuccess : fail(kNotReady);
}

API int cudaStreamSynchronize(Stream* stream) {
  if (Error e = enter()) return e;
  return wait_for_stream(stream);
}

API int cudaDeviceSynchronize() {
  if (Error e = enter()) return e;
  std::set<Stream*> streams;
  {
    std::unique_lock<std::mutex> held(device().lock);
    streams = device().streams;
  }
  for (Stream* stream : streams)
    if (Error e = wait_for_stream(stream)) return e;
  return kSuccess;
}

API int cudaStreamWaitEvent(Stream* stream, Event* event, unsigned) {
  if (Error e = enter()) return e;
  if (event->mark && !event->mark->done) simulated_submit(stream, new WaitTask(event->mark));
  return kSuccess;
}

API int cudaLaunchHostFunc(Stream* stream, void (*function)(void*), void* data) {
  if (Error e = enter()) return e;
  simulated_submit(stream, new FunctionTask([=] { function(data); }, true));
  return kSuccess;
}

API int cudaStreamAddCallback(Stream* stream, void (*function)(Stream*, int, void*), void* data, unsigned) {
  if (Error e = enter()) return e;
  simulated_submit(stream, new FunctionTask([=] { function(stream, kSuccess, data); }, true));
  return kSuccess;
}

// Graphs are not captured.
API int cudaStreamIsCapturing(Stream*, int* status) {
  *status = 0;
  return kSuccess;
}

API int cudaStreamGetCaptureInfo(Stream*, int* status, ...) {
  *status = 0;
  return kSuccess;
}

API int cudaThreadExchangeStreamCaptureMode(int*) { return kSuccess; }

// Events.

API int cudaEventCreateWithFlags(Event** event, unsigned) {
  if (Error e = enter()) return e;
  *event = new Event;
  return kSuccess;
}

API int cudaEventCreate(Event** event) { return cudaEventCreateWithFlags(event, 0); }

API int cudaEventDestroy(Event* event) {
  delete event;
  return kSuccess;
}

API int cudaEventRecord(Event* event, Stream* stream) {
  if (Error e = enter()) return e;
  auto mark = std::make_shared<Mark>();
  event->mark = mark;
  simulated_submit(stream, new MarkTask(mark));
  return kSuccess;
}

API int cudaEventRecordWithFlags(Event* event, Stream* stream, unsigned) { return cudaEventRecord(event, stream); }

API int cudaEventQuery(Event* event) {
  if (Error e = enter()) return e;
  return !event->mark || event->mark->done ? kSuccess : fail(kNotReady);
}

API int cudaEventSynchronize(Event* event) {
  if (Error e = enter()) return e;
  auto mark = event->mark;
  return mark ? wait_on_host([&] { return mark->done.load(); }) : kSuccess;
}

API int cudaEventElapsedTime(float* ms, Event* start, Event* end) {
  if (Error e = enter()) return e;
  if (!start->mark || !end->mark) return fail(kInvalidHandle);
  if (!start->mark->done || !end->mark->done) return fail(kNotReady);
  *ms = static_cast<float>(end->mark->at_ns - start->mark->at_ns) / 1e6f;
  return kSuccess;
}

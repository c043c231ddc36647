// The device of one process: streams are queues of tasks, run in order by whoever submits as long as nothing must be awaited,
// and else by one thread. Everything here is under one lock.
#pragma once
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <climits>
#include <cstdint>
#include <functional>
#include <memory>

#include "cuda.h"

struct Task {
  virtual ~Task() = default;
  // One step of it, under the device's lock. True: it is done.
  virtual bool advance() = 0;
  // When to try again though nobody rings, in ns of the monotonic clock; 0: when somebody rings.
  virtual int64_t due_ns() const { return 0; }
  // A host function: run outside the lock, since it may take other locks (the interpreter's, for one).
  virtual bool outside_lock() const { return false; }
};

// What other processes ring when something has changed that a task of this device may await: a futex in shared memory.
struct Bell {
  std::atomic<uint32_t> rings;
};

inline int64_t now_ns() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1000000000LL + t.tv_nsec;
}

inline void ring(Bell* bell) {
  bell->rings++;
  syscall(SYS_futex, &bell->rings, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

API void simulated_submit(Stream* stream, Task* task);
// The bell of this process, and the number of the file descriptor behind which others find it; starts the device's thread.
API Bell* simulated_bell(int* descriptor);
// Try all tasks again: something outside the device has changed.
API void simulated_advance();
// The faults: nothing on this device ends any more; every call fails; every call blocks.
API void simulated_stop();
API void simulated_lose();
API void simulated_block();
API bool simulated_is_lost();

// Put a function into a stream.
void submit(Stream* stream, std::function<void()> run);
// Wait on the host until all that was submitted to the stream so far is done, spinning or blocked.
Error wait_for_stream(Stream* stream);

// Remember an error for cudaGetLastError, and return it.
Error fail(Error error);
// What each call to the device begins with.
Error enter();
int current_device();
// What a kernel does, for the few whose results matter; empty for all others. Its arguments are read at once.
std::function<void()> plan_kernel(const char* name, void** arguments, Size3 grid);

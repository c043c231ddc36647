// Memory: a device's is the host's, in ranges that are remembered. Copies and fills go in stream order.
#include <sys/mman.h>

#include <cstring>
#include <map>
#include <mutex>
#include <vector>

#include "device.h"

namespace {

struct Range {
  size_t bytes;
  int type;  // as in PointerAttributes
  int device;
  bool mapped;  // by us
};

struct Ranges {
  std::mutex lock;
  std::map<uintptr_t, Range> by_address;
};

Ranges& ranges() {
  static Ranges* one = new Ranges;
  return *one;
}

constexpr size_t kDeviceBytes = size_t{16} << 30;
// What the driver keeps of a small copy from pageable memory, so that the call need not wait.
constexpr size_t kStagedBytes = size_t{64} << 10;

bool find(const void* address, Range* found, uintptr_t* base) {
  Ranges& r = ranges();
  std::unique_lock<std::mutex> held(r.lock);
  auto wanted = reinterpret_cast<uintptr_t>(address);
  auto next = r.by_address.upper_bound(wanted);
  if (next == r.by_address.begin()) return false;
  auto before = std::prev(next);
  if (wanted >= before->first + before->second.bytes) return false;
  *found = before->second;
  *base = before->first;
  return true;
}

int type_of(const void* address) {
  Range range;
  uintptr_t base;
  return find(address, &range, &base) ? range.type : 0;
}

Error allocate(void** address, size_t bytes, int type) {
  if (Error e = enter()) return e;
  *address = nullptr;
  if (!bytes) return kSuccess;
  void* memory = bytes > kDeviceBytes ? MAP_FAILED
                                      : mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) return fail(kMemoryAllocation);
  std::unique_lock<std::mutex> held(ranges().lock);
  ranges().by_address[reinterpret_cast<uintptr_t>(memory)] = {bytes, type, current_device(), true};
  *address = memory;
  return kSuccess;
}

Error release(void* address) {
  if (!address) return kSuccess;
  Ranges& r = ranges();
  std::unique_lock<std::mutex> held(r.lock);
  auto found = r.by_address.find(reinterpret_cast<uintptr_t>(address));
  if (found == r.by_address.end()) return fail(kInvalidValue);
  if (found->second.mapped) munmap(address, found->second.bytes);
  r.by_address.erase(found);
  return kSuccess;
}

Error copy(void* to, const void* from, size_t bytes, Stream* stream) {
  if (Error e = enter()) return e;
  if (!bytes) return kSuccess;
  bool from_pageable = type_of(from) == 0, to_pageable = type_of(to) == 0;
  if (from_pageable && !to_pageable && bytes <= kStagedBytes) {
    auto begin = static_cast<const char*>(from);
    auto staged = std::make_shared<std::vector<char>>(begin, begin + bytes);
    submit(stream, [=] { memcpy(to, staged->data(), bytes); });
    return kSuccess;
  }
  submit(stream, [=] { memmove(to, from, bytes); });
  return from_pageable || to_pageable ? wait_for_stream(stream) : kSuccess;
}

}  // namespace

extern "C" int cudaDeviceSynchronize();

API int cudaMalloc(void** address, size_t bytes) { return allocate(address, bytes, 2); }
API int cudaMallocAsync(void** address, size_t bytes, Stream*) { return allocate(address, bytes, 2); }

API int cudaFree(void* address) {
  if (!address) return kSuccess;
  if (int e = cudaDeviceSynchronize()) return e;
  return release(address);
}

API int cudaFreeAsync(void* address, Stream* stream) {
  submit(stream, [=] { release(address); });
  return kSuccess;
}

API int cudaHostAlloc(void** address, size_t bytes, unsigned) { return allocate(address, bytes, 1); }
API int cudaFreeHost(void* address) { return release(address); }

API int cudaHostRegister(void* address, size_t bytes, unsigned) {
  if (Error e = enter()) return e;
  std::unique_lock<std::mutex> held(ranges().lock);
  ranges().by_address[reinterpret_cast<uintptr_t>(address)] = {bytes, 1, current_device(), false};
  return kSuccess;
}

API int cudaHostUnregister(void* address) { return release(address); }

API int cudaMemGetInfo(size_t* free_bytes, size_t* total_bytes) {
  if (Error e = enter()) return e;
  size_t used = 0;
  std::unique_lock<std::mutex> held(ranges().lock);
  for (auto& [address, range] : ranges().by_address)
    if (range.type == 2) used += range.bytes;
  *total_bytes = kDeviceBytes;
  *free_bytes = used < kDeviceBytes ? kDeviceBytes - used : 0;
  return kSuccess;
}

API int cudaPointerGetAttributes(PointerAttributes* attributes, const void* address) {
  Range range;
  uintptr_t base;
  *attributes = {};
  attributes->device = -2;
  if (!find(address, &range, &base)) {
    attributes->host_pointer = const_cast<void*>(address);
    return kSuccess;
  }
  attributes->type = range.type;
  attributes->device = range.device;
  attributes->device_pointer = const_cast<void*>(address);
  if (range.type == 1) attributes->host_pointer = const_cast<void*>(address);
  return kSuccess;
}

// Address and size of the allocation that an address lies in; for the driver's attribute of the same meaning.
API bool simulated_range(const void* address, void** base, size_t* bytes) {
  Range range;
  uintptr_t start;
  if (!find(address, &range, &start)) return false;
  *base = reinterpret_cast<void*>(start);
  *bytes = range.bytes;
  return true;
}

API int cudaMemcpyAsync(void* to, const void* from, size_t bytes, int, Stream* stream) { return copy(to, from, bytes, stream); }

API int cudaMemcpyPeerAsync(void* to, int, const void* from, int, size_t bytes, Stream* stream) {
  return copy(to, from, bytes, stream);
}

API int cudaMemcpy(void* to, const void* from, size_t bytes, int) {
  if (int e = copy(to, from, bytes, nullptr)) return e;
  return wait_for_stream(nullptr);
}

API int cudaMemcpy2DAsync(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width, size_t height, int,
                          Stream* stream) {
  if (Error e = enter()) return e;
  submit(stream, [=] {
    for (size_t row = 0; row < height; row++)
      memmove(static_cast<char*>(to) + row * to_pitch, static_cast<const char*>(from) + row * from_pitch, width);
  });
  return type_of(from) && type_of(to) ? kSuccess : wait_for_stream(stream);
}

API int cudaMemsetAsync(void* address, int value, size_t bytes, Stream* stream) {
  if (Error e = enter()) return e;
  submit(stream, [=] { memset(address, value, bytes); });
  return kSuccess;
}

API int cudaMemset(void* address, int value, size_t bytes) { return cudaMemsetAsync(address, value, bytes, nullptr); }

// Pools: there is one, and nothing to set.
API int cudaDeviceGetDefaultMemPool(void** pool, int) {
  static int one;
  *pool = &one;
  return kSuccess;
}
API int cudaMemPoolSetAttribute(void*, int, void*) { return kSuccess; }
API int cudaMemPoolGetAttribute(void*, int, void* value) {
  *static_cast<uint64_t*>(value) = 0;
  return kSuccess;
}
API int cudaMemPoolSetAccess(void*, const void*, size_t) { return kSuccess; }
API int cudaMemPoolTrimTo(void*, size_t) { return kSuccess; }

// The few types of the CUDA runtime that the simulated device answers with, written from its public reference
// (docs.nvidia.com/cuda/cuda-runtime-api, version 13.0). Functions are `extern "C"`, so names alone bind them.
#pragma once
#include <cstddef>
#include <cstdint>

#define API extern "C" __attribute__((visibility("default")))

enum Error : int {
  kSuccess = 0,
  kInvalidValue = 1,
  kMemoryAllocation = 2,
  kNoDevice = 100,
  kInvalidDevice = 101,
  kInvalidHandle = 400,
  kNotReady = 600,
  kNotSupported = 801,
  kUnknown = 999,
};

enum CopyKind : int { kHostToHost, kHostToDevice, kDeviceToHost, kDeviceToDevice, kDefaultDirection };

struct Size3 {
  unsigned x, y, z;
};
struct Stream;
struct Event;

// cudaPointerAttributes; `type` is 0 for memory that CUDA does not know, 1 for pinned host memory, 2 for a device's.
struct PointerAttributes {
  int type;
  int device;
  void* device_pointer;
  void* host_pointer;
  long reserved[8];
};

// cudaFuncAttributes, to its last field that torch reads.
struct FunctionAttributes {
  size_t shared_bytes, constant_bytes, local_bytes;
  int max_threads_per_block, registers, ptx_version, binary_version, cache_mode, max_dynamic_shared_bytes;
};

// cudaLaunchConfig_t.
struct LaunchConfig {
  Size3 grid, block;
  size_t shared_bytes;
  Stream* stream;
  void* attributes;
  unsigned attribute_count;
};

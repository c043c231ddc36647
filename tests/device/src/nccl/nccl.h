// The types of NCCL's interface that the simulated one answers with, written from its public reference (version 2.29).
#pragma once
#include <cstddef>
#include <cstdint>

#include "../cuda.h"

enum Result : int { kOk = 0, kCudaError = 1, kInvalidArgument = 4, kInvalidUsage = 5, kRemoteError = 6, kInProgress = 7 };

enum Type : int { kInt8, kUint8, kInt32, kUint32, kInt64, kUint64, kFloat16, kFloat32, kFloat64, kBfloat16, kFp8E4m3, kFp8E5m2 };
enum Reduction : int { kSum, kProduct, kMaximum, kMinimum, kAverage };

inline size_t bytes_of(int type) {
  switch (type) {
    case kInt32: case kUint32: case kFloat32: return 4;
    case kInt64: case kUint64: case kFloat64: return 8;
    case kFloat16: case kBfloat16: return 2;
    default: return 1;
  }
}

struct UniqueId {
  char bytes[128];
};

// ncclConfig_t, to its first field that matters here.
struct Config {
  size_t size;
  unsigned magic, version;
  int blocking;
};

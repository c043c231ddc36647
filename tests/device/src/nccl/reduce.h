// Element by element, into the first.
#pragma once
#include <cstring>

#include "nccl.h"

template <typename T>
void reduce_values(T* into, const T* from, size_t count, int reduction) {
  for (size_t i = 0; i < count; i++) {
    switch (reduction) {
      case kProduct: into[i] = static_cast<T>(into[i] * from[i]); break;
      case kMaximum: into[i] = from[i] > into[i] ? from[i] : into[i]; break;
      case kMinimum: into[i] = from[i] < into[i] ? from[i] : into[i]; break;
      default: into[i] = static_cast<T>(into[i] + from[i]);  // averages are divided at the end
    }
  }
}

template <typename T>
void divide_values(T* values, size_t count, int by) {
  for (size_t i = 0; i < count; i++) values[i] = static_cast<T>(values[i] / static_cast<T>(by));
}

// Half precision is left as the first member has it.
inline void reduce_bytes(int type, char* into, const char* from, size_t count, int reduction) {
  auto apply = [&](auto zero) {
    using T = decltype(zero);
    reduce_values(reinterpret_cast<T*>(into), reinterpret_cast<const T*>(from), count, reduction);
  };
  switch (type) {
    case kInt8: return apply(int8_t{});
    case kUint8: return apply(uint8_t{});
    case kInt32: return apply(int32_t{});
    case kUint32: return apply(uint32_t{});
    case kInt64: return apply(int64_t{});
    case kUint64: return apply(uint64_t{});
    case kFloat32: return apply(float{});
    case kFloat64: return apply(double{});
    default: return;
  }
}

inline void divide_bytes(int type, char* values, size_t count, int by) {
  if (type == kFloat32) divide_values(reinterpret_cast<float*>(values), count, by);
  if (type == kFloat64) divide_values(reinterpret_cast<double*>(values), count, by);
}

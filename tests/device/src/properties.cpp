// Devices, their properties, versions and errors.
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "device.h"
#include "switches.h"

namespace {

thread_local int chosen_device = 0;
thread_local Error last_error = kSuccess;

constexpr int kRuntimeVersion = 13000;
constexpr int kMajor = 9, kMinor = 0, kProcessors = 8;

// How many devices the environment leaves visible; numbers only.
int visible_devices() {
  static const int count = [] {
    const char* visible = getenv("CUDA_VISIBLE_DEVICES");
    if (!visible) return switches().devices;
    int found = 0;
    for (const char* at = visible; *at;) {
      char* end;
      long number = strtol(at, &end, 10);
      if (end == at || number < 0 || number >= switches().devices) break;
      found++;
      at = *end == ',' ? end + 1 : end;
    }
    return found;
  }();
  return count;
}

// cudaDeviceProp of CUDA 13.0 is 1,008 bytes; what torch reads of it lies at these offsets.
constexpr size_t kPropertiesBytes = 1008;

template <typename T>
void put(char* properties, size_t offset, T value) {
  memcpy(properties + offset, &value, sizeof value);
}

}  // namespace

Error fail(Error error) {
  last_error = error;
  return error;
}

int current_device() { return chosen_device; }

API int cudaGetDeviceCount(int* count) {
  *count = visible_devices();
  return *count ? kSuccess : fail(kNoDevice);
}

API int cudaGetDevice(int* number) {
  *number = chosen_device;
  return visible_devices() ? kSuccess : fail(kNoDevice);
}

API int cudaSetDevice(int number) {
  if (Error e = enter()) return e;
  if (number < 0 || number >= visible_devices()) return fail(kInvalidDevice);
  chosen_device = number;
  return kSuccess;
}

API int cudaGetDeviceProperties(void* properties, int number) {
  if (number < 0 || number >= visible_devices()) return fail(kInvalidDevice);
  auto p = static_cast<char*>(properties);
  memset(p, 0, kPropertiesBytes);
  snprintf(p, 256, "Simulated device");
  put<char>(p, 256 + 15, static_cast<char>(number + 1));  // uuid
  put<size_t>(p, 288, size_t{16} << 30);                  // totalGlobalMem
  put<size_t>(p, 296, 48 << 10);                          // sharedMemPerBlock
  put<int>(p, 304, 65536);                                // regsPerBlock
  put<int>(p, 308, 32);                                   // warpSize
  put<int>(p, 320, 1024);                                 // maxThreadsPerBlock
  for (int i = 0; i < 3; i++) {
    put<int>(p, 324 + 4 * i, i < 2 ? 1024 : 64);          // maxThreadsDim
    put<int>(p, 336 + 4 * i, i ? 65535 : 2147483647);     // maxGridSize
  }
  put<size_t>(p, 352, 64 << 10);                          // totalConstMem
  put<int>(p, 360, kMajor);
  put<int>(p, 364, kMinor);
  put<size_t>(p, 368, 512);                               // textureAlignment
  put<int>(p, 384, kProcessors);                          // multiProcessorCount
  put<int>(p, 568, number + 1);                           // pciBusID
  put<int>(p, 588, 1);                                    // unifiedAddressing
  put<int>(p, 596, 4 << 20);                              // l2CacheSize
  put<int>(p, 604, 2048);                                 // maxThreadsPerMultiProcessor
  put<size_t>(p, 624, 228 << 10);                         // sharedMemPerMultiprocessor
  put<int>(p, 632, 65536);                                // regsPerMultiprocessor
  put<size_t>(p, 672, 227 << 10);                         // sharedMemPerBlockOptin
  put<int>(p, 688, 32);                                   // maxBlocksPerMultiProcessor
  return kSuccess;
}

// Numbers of cudaDeviceAttr. What is not listed is 0: not there, not supported.
API int cudaDeviceGetAttribute(int* value, int attribute, int) {
  switch (attribute) {
    case 1: *value = 1024; break;       // threads a block
    case 8: *value = 48 << 10; break;   // shared memory a block
    case 10: *value = 32; break;        // threads a warp
    case 16: *value = kProcessors; break;
    case 39: *value = 2048; break;      // threads a processor
    case 41: *value = 1; break;         // unified addressing
    case 75: *value = kMajor; break;
    case 76: *value = kMinor; break;
    case 81: *value = 228 << 10; break; // shared memory a processor
    case 97: *value = 227 << 10; break; // shared memory a block, opted in
    default: *value = 0;
  }
  return kSuccess;
}

API int cudaDeviceGetPCIBusId(char* text, int bytes, int number) {
  snprintf(text, static_cast<size_t>(bytes), "0000:%02x:00.0", number + 1);
  return kSuccess;
}

API int cudaDeviceCanAccessPeer(int* can, int, int) {
  *can = 1;
  return kSuccess;
}
API int cudaDeviceEnablePeerAccess(int, unsigned) { return kSuccess; }

API int cudaRuntimeGetVersion(int* version) {
  *version = kRuntimeVersion;
  return kSuccess;
}
API int cudaDriverGetVersion(int* version) {
  *version = kRuntimeVersion;
  return kSuccess;
}

API int cudaGetLastError() {
  Error error = simulated_is_lost() ? kUnknown : last_error;
  last_error = kSuccess;
  return error;
}
API int cudaPeekAtLastError() { return simulated_is_lost() ? kUnknown : last_error; }

API const char* cudaGetErrorName(int error) {
  switch (error) {
    case kSuccess: return "cudaSuccess";
    case kInvalidValue: return "cudaErrorInvalidValue";
    case kMemoryAllocation: return "cudaErrorMemoryAllocation";
    case kNoDevice: return "cudaErrorNoDevice";
    case kInvalidDevice: return "cudaErrorInvalidDevice";
    case kInvalidHandle: return "cudaErrorInvalidResourceHandle";
    case kNotReady: return "cudaErrorNotReady";
    case kNotSupported: return "cudaErrorNotSupported";
    default: return "cudaErrorUnknown";
  }
}

API const char* cudaGetErrorString(int error) {
  switch (error) {
    case kSuccess: return "no error";
    case kInvalidValue: return "invalid argument";
    case kMemoryAllocation: return "out of memory";
    case kNoDevice: return "no CUDA-capable device is detected";
    case kInvalidDevice: return "invalid device ordinal";
    case kInvalidHandle: return "invalid resource handle";
    case kNotReady: return "device not ready";
    case kNotSupported: return "operation not supported";
    default: return "unknown error";
  }
}

API int cudaProfilerStart() { return kSuccess; }
API int cudaProfilerStop() { return kSuccess; }

// What torch looks up of the driver without linking it: all of it answers "not supported".
static int not_supported() { return kNotSupported; }

API int cudaGetDriverEntryPointByVersion(const char*, void** function, unsigned, unsigned long long, int* result) {
  *function = reinterpret_cast<void*>(not_supported);
  if (result) *result = 0;
  return kSuccess;
}

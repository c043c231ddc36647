// Kernels: registered by the libraries at load, known by their mangled names, launched into streams.
#include <cstdio>
#include <unordered_map>
#include <vector>

#include "device.h"
#include "switches.h"

namespace {

std::unordered_map<const void*, const char*>& names() {
  static auto* one = new std::unordered_map<const void*, const char*>;
  return *one;
}

struct Configuration {
  Size3 grid, block;
  size_t shared_bytes;
  Stream* stream;
};
thread_local std::vector<Configuration> configurations;

// `torch.cuda._sleep`: the one kernel that takes time. A cycle is a nanosecond.
struct SpinTask : Task {
  int64_t cycles, until = 0;
  explicit SpinTask(int64_t c) : cycles(c) {}
  bool advance() override {
    if (!until) until = now_ns() + cycles;
    return now_ns() >= until;
  }
  int64_t due_ns() const override { return until; }
};

int launch(const void* function, Size3 grid, void** arguments, Stream* stream) {
  if (Error e = enter()) return e;
  auto found = names().find(function);
  const char* name = found == names().end() ? "" : found->second;
  if (switches().traces) fprintf(stderr, "simulated device: kernel %s\n", name);
  if (__builtin_strstr(name, "spin_kernel")) {
    simulated_submit(stream, new SpinTask(*static_cast<int64_t*>(arguments[0])));
  } else if (auto run = plan_kernel(name, arguments, grid)) {
    submit(stream, run);
  }
  return kSuccess;
}

}  // namespace

API void** __cudaRegisterFatBinary(void* binary) {
  static void* one;
  one = binary;
  return &one;
}
API void __cudaRegisterFatBinaryEnd(void**) {}
API void __cudaUnregisterFatBinary(void**) {}
API char __cudaInitModule(void**) { return 1; }
API void __cudaRegisterVar(void**, char*, char*, const char*, int, size_t, int, int) {}

API void __cudaRegisterFunction(void**, const char* host, char*, const char* name, int, void*, void*, void*, void*, int*) {
  names()[host] = name;
}

API unsigned __cudaPushCallConfiguration(Size3 grid, Size3 block, size_t shared_bytes, Stream* stream) {
  configurations.push_back({grid, block, shared_bytes, stream});
  return 0;
}

API int __cudaPopCallConfiguration(Size3* grid, Size3* block, size_t* shared_bytes, void* stream) {
  if (configurations.empty()) return fail(kInvalidValue);
  Configuration last = configurations.back();
  configurations.pop_back();
  *grid = last.grid;
  *block = last.block;
  *shared_bytes = last.shared_bytes;
  *static_cast<Stream**>(stream) = last.stream;
  return kSuccess;
}

// A kernel's handle is the address of the function that stands for it on the host.
API int __cudaGetKernel(const void** kernel, const void* function) {
  *kernel = function;
  return kSuccess;
}

API int __cudaLaunchKernel(const void* kernel, Size3 grid, Size3, void** arguments, size_t, Stream* stream) {
  return launch(kernel, grid, arguments, stream);
}
API int cudaLaunchKernel(const void* function, Size3 grid, Size3, void** arguments, size_t, Stream* stream) {
  return launch(function, grid, arguments, stream);
}
API int cudaLaunchCooperativeKernel(const void* function, Size3 grid, Size3, void** arguments, size_t, Stream* stream) {
  return launch(function, grid, arguments, stream);
}
API int cudaLaunchKernelExC(const LaunchConfig* config, const void* function, void** arguments) {
  return launch(function, config->grid, arguments, config->stream);
}

API int cudaFuncGetAttributes(FunctionAttributes* attributes, const void*) {
  *attributes = {0, 0, 0, 1024, 32, 90, 90, 0, 48 << 10};
  return kSuccess;
}
API int cudaFuncSetAttribute(const void*, int, int) { return kSuccess; }
API int cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void*, int, size_t) {
  *blocks = 2;
  return kSuccess;
}
API int cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, const void*, int, size_t, unsigned) {
  *blocks = 2;
  return kSuccess;
}
